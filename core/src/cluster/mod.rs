//! What is known of the cluster: live stores, what a request may say and what may come of it.

pub mod account;
pub mod call_error;
pub mod conditions;
pub mod live;
pub mod store;
pub mod view;
pub mod write;
