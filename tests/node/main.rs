//! Everything that needs a node, where pods run (`#[ignore]` elsewhere).
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

mod cluster;
mod pods;
#[path = "../support/mod.rs"]
mod support;
