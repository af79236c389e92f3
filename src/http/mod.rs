//! HTTP served by the operator.

pub mod admin;
