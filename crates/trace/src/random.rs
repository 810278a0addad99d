//! Numbers for tests, the same from one run to the next.

/// Numbers below the bound that each call gives, by Marsaglia's xorshift64; `seed` is not 0.
pub(crate) fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    }
}
