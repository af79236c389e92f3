//! What a commit wants, as far as the engine needs to know.

pub mod desired;
pub mod last_good;
pub mod loaded;
pub mod source_at;
pub mod source_error;
