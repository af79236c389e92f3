//! Commits as the engine knows them: the desired set of each, and what is remembered of earlier ones.

pub mod desired;
pub mod last_good;
pub mod loaded;
pub mod source_at;
pub mod source_error;
