//! The HTTP servers of the operator.

pub mod admin;
pub mod webhook;
