//! What the engine says to controllers: the agents that commits want, and what images are made of.

pub mod build_sources;
pub(super) mod builds;

pub use convoke_core::sync::published::wanted_agents;
