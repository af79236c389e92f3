//! The engine: compares the desired set of a commit with the live objects, and writes the differences.
//!
//! ```text
//!  poll ─► commit ─► plan ─► apply ─► status          each arrow: the input of the next step
//!                     ▲        ▲
//!                   peers    io (requests, time)
//! ```
//! | module | what | its imports |
//! |---|---|---|
//! | [`commit`] | what a commit wants: the desired set, last good definitions, the commit as it was read | |
//! | [`io`] | the input and output of a reconcile: requests, polls and the time | `commit` |
//! | [`plan`] | the plan (pure), the prune brake, the quarantine, the work index | `commit` |
//! | [`apply`] | the plan's writes: order, resume, impersonation, contention, problems | `io`, `plan` |
//! | [`peers`] | the other GitSyncs of the namespace: hand-over, questions before a delete, `dependsOn` | `io`, `plan` |
//! | [`status`] | what people see: conditions, history, events, and the one writer of the status | `apply`, `plan` |
//! | [`poll`] | when a remote is polled, and the answer | `peers`, `status` |
//! | [`reconcile`] | one reconcile of a GitSync, from top to bottom; its deletion | all of them |
//! | [`machine`] | runs the reconciles of a namespace without input and output | `reconcile` |
//! | [`triggers`] | which changes of objects start a reconcile | `plan`, `status` |
//! | [`published`] | what the engine publishes to the controllers | `commit` |
//! | [`preview`] | a plan without an operator, for the command line | `plan` |
//!
//! Absence must be proven. A commit with an error deletes nothing. Deletes run last, and only after every other write of the plan
//! succeeded. Each delete names the uid and version of the object that was checked.

pub mod apply;
pub mod commit;
pub mod io;
pub mod live_namespace;
pub mod machine;
pub mod order;
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
