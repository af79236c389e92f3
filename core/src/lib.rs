//! The decisions of Convoke, without input and output. This page is the map.
//!
//! | module | content |
//! |---|---|
//! | [`api`] | the custom resources, names, labels, the mark |
//! | [`definition`] | the repository format: documents, positions, validation |
//! | [`cluster`] | live stores of objects; the parameters and errors of requests to the API server |
//! | [`dockerfile`] | the images that a Dockerfile names |
//! | [`git`] | names of commits |
//! | [`sync`] | the sync engine: a state machine that takes events and gives the next actions |
//! | [`next`] | when to reconcile an object again |
//! | [`order`] | the order in which events become known |
//! | [`packed`] | compact forms of objects |
//! | [`shared_map`] | sorted maps whose copies share memory |
//! | [`text`] | texts from outside, made fit to be shown |
//! | [`time`] | durations, as specs write them |
//!
//! This crate has no executor, client, repository, file, clock or random numbers. The caller passes in the time and
//! everything else that a decision depends on (docs/decisions/0018). `clippy.toml` denies the parts of the standard library
//! that would reach around this.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod api;
pub mod cluster;
pub mod definition;
pub mod dockerfile;
pub mod git;
pub mod next;
pub mod order;
pub mod packed;
pub mod shared_map;
pub mod sync;
#[cfg(test)]
mod test_rng;
pub mod text;
pub mod time;
