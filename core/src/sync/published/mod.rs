//! What the engine publishes to the controllers.

pub mod wanted_agents;
