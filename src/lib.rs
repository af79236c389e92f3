//! Convoke runs AI agents on Kubernetes from a Git repository. This page is the map.
//!
//! ```text
//!  git remote ──ls-refs──► git ──objects──► definition ──► sync::commit  ──► sync::plan ──► sync::apply ──► etcd
//!                          (bare store,     parse and      (hashes)             ▲            server-side
//!                           no checkout)    validate                            │            apply, prune
//!                                              │                                │               │
//!                                              ▼                         cluster::store ◄──watch┘
//!                                     problems with path:line:column     (live cache)
//!                                     on GitSync, CLI                           │
//!                                                                               ▼
//!                                                     controllers: Agent → Deployment, Service, ConfigMap, …
//! ```
//!
//! All decisions are made in a package of their own ([`convoke_core`], in `core/`), which knows no executor, client, repository
//! or clock. It holds the repository format, the plan, and the sync engine as a state machine. Its modules have the same names
//! here.
//!
//! | module | what |
//! |---|---|
//! | [`api`], [`definition`], [`order`], [`packed`], [`shared_map`] | modules of the core |
//! | [`git`] | all code that knows Git: finds and fetches commits, reads trees without a checkout |
//! | [`forge`] | commit statuses on GitHub, GitLab and Gitea |
//! | [`net`] | which addresses may be dialled, and the dialler (its policy is pure) |
//! | [`registry`] | the client of container registries, and the image layouts that are pushed |
//! | [`sync`] | the core's sync engine, and [`sync::driver`], which does its I/O |
//! | [`cluster`] | the only code that talks to the API server; the stores are the core's |
//! | [`fair`] | shares of concurrent work for each namespace (pure) |
//! | [`runtime`] | the queues and workers of all reconcilers |
//! | [`controllers`] | one folder for each kind: resolve → validate → desired → apply → status |
//! | [`http`] | health, readiness, metrics |
//! | [`cli`] | one file for each command; the only code that prints |
//!
//! Pure modules of this package start with `#![deny(clippy::disallowed_types, clippy::disallowed_methods)]`, and
//! `clippy.toml` lists what these lints forbid.

pub use convoke_core::{api, definition, order, packed, shared_map};

pub mod cli;
pub mod cluster;
pub mod controllers;
pub mod fair;
pub mod forge;
#[doc(hidden)]
pub mod fuzzing;
pub mod git;
pub mod http;
pub mod net;
pub mod registry;
pub mod runtime;
pub mod sync;
