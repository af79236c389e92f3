//! Convoke runs AI agents on Kubernetes from a Git repository. This page is the map.
//!
//! ```text
//!  git remote ──ls-refs──► git ──objects──► definition ──► sync::desired ──► sync::plan ──► sync::apply ──► etcd
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
//! | module | what | pure |
//! |---|---|---|
//! | [`api`] | the custom resources, names, labels, the mark | yes |
//! | [`definition`] | the repository format: documents, positions, validation | yes |
//! | [`git`] | all that knows Git: ask, fetch, read trees without a checkout | no |
//! | [`net`] | whom this process may dial, and the one dialler (its policy is pure) | partly |
//! | [`sync`] | what decides is a machine without input and output ([`sync::machine`]); [`sync::driver`] does what it asks for | partly |
//! | [`cluster`] | the only code that talks to Kubernetes | no |
//! | [`controllers`] | own runtime, then one folder a kind: resolve → validate → desired → apply → status | partly |
//! | [`fair`] | whose turn it is among namespaces | yes |
//! | [`packed`] | objects in few bytes | yes |
//! | [`shared_map`] | sorted maps whose copies share what they have in common | yes |
//! | [`http`] | health, readiness, metrics | no |
//! | [`cli`] | one file a command; the only code that prints | no |
//!
//! Pure modules see no client, no clock and no file system: they start with
//! `#![deny(clippy::disallowed_types, clippy::disallowed_methods)]`, and `clippy.toml` lists what that forbids.

pub use convoke_core::{api, definition, packed, shared_map};

pub mod cli;
pub mod cluster;
pub mod controllers;
pub mod fair;
pub mod git;
pub mod http;
pub mod net;
pub mod sync;
