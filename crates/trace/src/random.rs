//! Random numbers for tests, the same in every run.

/// Returns random numbers below the bound that each call is given, by Marsaglia's xorshift64;
/// `seed` must not be 0.
pub(crate) fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    }
}
