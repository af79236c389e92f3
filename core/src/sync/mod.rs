//! The engine: a commit's desired set against the live objects, and the writes that close the gap.
//!
//! ```text
//!  poll ─► commit ─► plan ─► apply ─► status          each arrow: what the next step is given
//!                     ▲        ▲
//!                   peers    io (requests, time)
//! ```
//! | module | what | its imports |
//! |---|---|---|
//! | [`commit`] | what a commit wants: the desired set, last good definitions, the commit as it was read | |
//! | [`io`] | how a reconcile asks for requests, polls and the time, and gets its answers | `commit` |
//! | [`plan`] | what is to be done (pure): the plan, the prune brake, the quarantine, the work index | `commit` |
//! | [`apply`] | the plan's writes: order, resume, impersonation, contention, problems | `io`, `plan` |
//! | [`peers`] | the other GitSyncs of the namespace: hand-over, questions before a delete, `dependsOn` | `io`, `plan` |
//! | [`status`] | what people see: conditions, history, events, and the one writer of the status | `apply`, `plan` |
//! | [`poll`] | when the remote is polled, and what came of it | `peers`, `status` |
//! | [`reconcile`] | one reconcile of a GitSync, from top to bottom; its deletion | all of them |
//! | [`machine`] | runs reconciles without input and output; whoever drives it does what it asks for | `reconcile` |
//! | [`triggers`] | which changes of objects start a reconcile | `plan`, `status` |
//! | [`published`] | what the engine says to controllers | `commit` |
//! | [`preview`] | a plan without an operator, for the command line | `plan` |
//!
//! Absence must be proven: a commit with any error deletes nothing, deletes run last and only after every other
//! write of the plan succeeded, and each carries the uid and version of the object that was looked at.

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
