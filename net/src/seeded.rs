//! Numbers that look random and are the same in each run, for this crate's own tests (Marsaglia's xorshift, 64 bits).

/// Draws below a bound, which is not zero.
pub fn seeded() -> impl FnMut(u64) -> u64 {
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    move |below| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    }
}
