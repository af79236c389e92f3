//! (pure) The repository format.
pub mod tree;
