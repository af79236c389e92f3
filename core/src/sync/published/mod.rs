//! What the engine says to controllers.

pub mod wanted_agents;
