//! Convoke runs AI agents on Kubernetes from a Git repository.
pub mod api;
pub mod definition;
