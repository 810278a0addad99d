//! Pseudo-random numbers for the unit tests (Marsaglia's xorshift), the same ones in each run.

/// A function that returns a number below its argument.
pub(crate) fn below() -> impl FnMut(u64) -> u64 {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    move |bound| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    }
}
