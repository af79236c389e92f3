//! The engine: a commit's desired set against the live objects, and the writes that close the gap.
//!
//! ```text
//! Catalog ─► desired (pure) ─┐
//!                            ├─► plan (pure) ─► apply ─► prune ─► status (pure) ─► one patch
//! live stores ───────────────┘
//! ```
//! What decides is a [`machine`] without input and output; whoever drives it does what it asks for.
//!
//! Absence must be proven: a commit with any error deletes nothing, deletes run last and only after every other
//! write of the plan succeeded, and each carries the uid and version of the object that was looked at.

pub mod apply;
pub mod approvals;
#[cfg(test)]
mod asked_tests;
pub mod board;
mod carry;
mod consult;
pub mod depends;
#[cfg(test)]
mod depends_tests;
pub mod desired;
mod drift;
mod end;
mod ending;
pub mod engine;
mod events;
mod fights;
mod history;
pub mod kept;
pub mod listen;
pub mod loaded;
mod look;
pub mod machine;
mod offers;
pub mod order;
mod others;
mod overview;
pub mod pieces;
pub mod plan;
pub mod preview;
mod problems;
#[cfg(test)]
mod properties;
mod references;
pub mod rights;
#[cfg(test)]
mod script;
mod siblings;
#[cfg(test)]
#[allow(clippy::disallowed_methods)]
// who runs the scenarios has a clock and an environment; they have none
mod simulation;
pub mod source_at;
pub mod source_error;
mod space;
pub mod spoken;
pub mod state;
pub mod status;
mod tell;
pub mod touched;
#[cfg(test)]
mod transcripts;
mod unreadable;
pub mod verdict;
pub mod wanted_agents;
pub mod words;
