//! The only code that talks to the API server: the client, watches and their stores, server-side apply, events and statuses.
//!
//! ```text
//! API server ──list+watch──► reflector ──► Store (one a kind) ──changes──► queues of engine and controllers
//!      ▲                                     ▲
//!      └────────── ssa ──── reply overlays ──┘
//! ```

pub use convoke_core::cluster::{conditions, live, store};

pub mod budget;
pub mod child_watch;
pub mod children;
pub mod client;
pub mod events;
#[cfg(test)]
pub(crate) mod fake;
pub mod hidden;
pub mod identity;
pub mod meta;
pub mod own_user;
mod pod_status;
pub mod pods;
pub mod projection;
pub mod read;
pub mod readiness;
pub mod ready_pods;
pub mod reflector;
pub mod ssa;
pub mod status;
pub mod writes;
