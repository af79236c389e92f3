//! What the sync engine publishes to the controllers: the agents that commits want, and the sources that images are built from.

pub mod build_sources;
pub mod builds;

pub use convoke_core::sync::published::wanted_agents;
