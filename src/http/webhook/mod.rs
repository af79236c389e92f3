//! The server for webhooks of forges: a push wakes its GitSync.
//!
//! | module | what |
//! |---|---|
//! | [`delivery`] | whether a delivery is signed with the token, and what it tells (pure) |
//! | [`seen`] | the ids of deliveries that were taken (pure) |
//! | [`hooks`] | which path is whose, with which token |
//! | [`body`] | reads a body within its limits |
//! | [`server`] | connections, their limits and deadlines, and the answers |
//!
//! Nothing of a delivery is trusted but that there was a push: no URL in it is dialled, and nothing of it is logged.

pub mod body;
pub mod delivery;
pub mod hooks;
pub mod seen;
pub mod server;
