//! The I/O of the sync engine: it polls remotes, sends requests to the API server, and gives the engine the answers.
//!
//! The decisions are made by the state machine of [`convoke_core::sync`], which knows no executor, client or repository. The
//! [`driver`] does what the machine asks for.

pub use convoke_core::sync::*;

pub mod abandoned;
pub mod budgets;
pub mod commit_status;
pub mod concurrency;
pub mod credentials;
pub mod driver;
pub mod local;
pub mod newest;
pub mod published;
pub mod secrets;
pub mod source;
pub mod variables;
pub mod verification;
pub mod webhooks;
