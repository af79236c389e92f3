//! (pure) Values that cannot be printed.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use serde::Deserialize;

/// A value whose debug output does not show it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Hidden<T>(T);

impl<T> Hidden<T> {
    /// Hides a value.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value.
    #[must_use]
    pub const fn get(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
