//! What drives the engine: looks at remotes, sends its requests, tells it what came of them.
//!
//! What decides is the machine of [`convoke_core::sync`], which knows no executor, client or repository; the [`driver`] does
//! what it asks for.

pub use convoke_core::sync::*;

pub mod abandoned;
pub mod budgets;
pub mod concurrency;
pub mod driver;
pub mod local;
pub mod published;
pub mod source;
pub mod variables;
