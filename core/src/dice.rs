//! (tests) Random numbers from a seed: the same seed gives the same case, everywhere.

/// xorshift. Never of the seed 0, which stays 0.
pub struct Dice(pub u64);

impl Dice {
    /// Dice for the case of this number: neighbours have little in common.
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

    /// Whether this is one of so many.
    pub fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, things: &[T]) -> T {
        things[self.roll(things.len())]
    }
}
