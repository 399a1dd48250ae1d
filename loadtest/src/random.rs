//! A small generator of numbers (xorshift64*): what it draws need only be spread and repeatable.

/// The generator of one thread.
#[derive(Clone, Copy)]
pub struct Random(u64);

impl Random {
    /// Any seed, 0 too.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next 56 bits.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 8
    }

    /// From 0 up to, but not including, 1.
    pub fn fraction(&mut self) -> f64 {
        (self.next() & ((1 << 53) - 1)) as f64 / (1u64 << 53) as f64
    }
}
