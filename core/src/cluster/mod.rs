//! Live stores of objects, and the parameters and errors of requests to the API server.

pub mod account;
pub mod call_error;
pub mod conditions;
pub mod live;
pub mod store;
pub mod view;
pub mod write;
