//! Everything that needs a real API server and no node, in one binary: it is linked once.
//!
//! Tests share one control plane and one operator, a namespace for each test. Who needs other arguments of the operator, counts
//! all writes or kills it has a control plane of its own (`support::cluster`).
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../support/mod.rs"]
mod support;

mod addresses;
mod agent_build;
mod built_image;
mod cli_cluster;
mod cluster_smoke;
mod commit_status;
mod controllers;
mod crash;
mod crash_points;
mod credentials;
mod depends_on;
mod describe;
mod drift;
mod end_of_sync;
mod fairness;
mod gitea;
mod hand_over;
mod held_deletes;
mod honest_ready;
mod impersonation;
mod init;
mod inputs;
mod install;
mod left_over;
mod local_folder;
mod model_keys;
mod pod_security;
mod pods;
mod printed_commands;
mod quarantine;
mod reading;
mod readme;
mod repository_format;
mod shared_repository;
mod sync;
mod sync_safety;
mod told;
mod users_pain;
mod verify;
mod webhook;
