//! What Convoke decides, without input and output. This page is the map.
//!
//! | module | what |
//! |---|---|
//! | [`api`] | the custom resources, names, labels, the mark |
//! | [`definition`] | the repository format: documents, positions, validation |
//! | [`cluster`] | what is known of the cluster: live stores, what a request may say and what may come of it |
//! | [`git`] | which commit |
//! | [`sync`] | the engine: a machine that is told what happened and asked what is to be done next |
//! | [`next`] | when to look at an object again |
//! | [`packed`] | objects in few bytes |
//! | [`shared_map`] | sorted maps whose copies share what they have in common |
//!
//! There is no executor, client, repository, file, clock or chance among its dependencies: who drives it passes in what
//! it needs to know (docs/decisions/0018). What could be reached all the same through the standard library is denied by
//! `clippy.toml`.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod api;
pub mod cluster;
pub mod definition;
#[cfg(test)]
mod dice;
pub mod git;
pub mod next;
pub mod packed;
pub mod shared_map;
pub mod sync;
