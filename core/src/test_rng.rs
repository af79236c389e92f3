//! (tests) A random number generator with a seed: the same seed gives the same test case, everywhere.

/// xorshift64. A seed of 0 gives only zeros: use [`TestRng::new`] for numbered cases.
pub struct TestRng(pub u64);

impl TestRng {
    /// The generator of a numbered case. Neighbouring numbers give unlike sequences.
    pub const fn new(case: u64) -> Self {
        Self(case.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).expect("small")
    }

    /// True once in `sides` calls, on average.
    pub fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.roll(things.len())]
    }
}
