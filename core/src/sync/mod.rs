//! The engine: compares the desired set of a commit with the live objects, and writes the differences.
//!
//! ```text
//!  poll ─► commit ─► plan ─► apply ─► status          each arrow: the input of the next step
//!                     ▲        ▲
//!                   peers    io (requests, time)
//! ```
//! | module | what |
//! |---|---|
//! | [`commit`] | what a commit wants: the desired set, last good definitions, the commit as it was read |
//! | [`io`] | the input and output of a reconcile: requests, polls and the time |
//! | [`plan`] | the plan (pure), the prune brake, the quarantine, the work index |
//! | [`apply`] | the plan's writes: order, resume, impersonation, contention, problems |
//! | [`peers`] | the other GitSyncs of the namespace: hand-over, questions before a delete, `dependsOn` |
//! | [`status`] | what people see: conditions, history, events, and the one writer of the status |
//! | [`poll`] | when a remote is polled, and the answer |
//! | [`reconcile`] | one reconcile of a GitSync, from top to bottom; its deletion |
//! | [`machine`] | runs the reconciles of a namespace without input and output |
//! | [`triggers`] | which changes of objects start a reconcile |
//! | [`published`] | what the engine publishes to the controllers |
//! | [`preview`] | a plan without an operator, for the command line |
//!
//! A module imports only from those below it in the order of docs/architecture.md, which a test holds.
//!
//! Absence must be proven. A commit with an error deletes nothing. Deletes run last, and only after every other write of the plan
//! succeeded. Each delete names the uid and version of the object that was checked.

pub mod apply;
pub mod commit;
pub mod io;
pub mod live_namespace;
pub mod machine;
pub mod peers;
pub mod plan;
pub mod poll;
pub mod preview;
#[cfg(test)]
mod properties;
pub mod published;
pub mod reasons;
pub mod reconcile;
#[cfg(test)]
#[allow(clippy::disallowed_methods)]
// who runs the scenarios has a clock and an environment; they have none
mod simulation;
pub mod status;
pub mod subject;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod transcripts;
pub mod triggers;
