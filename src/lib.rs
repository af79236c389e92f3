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
//! What decides is a package of its own ([`convoke_core`], in `core/`), which knows no executor, client, repository or clock:
//! the repository format, the plan, and the engine as a machine that is asked what is to be done next. Its modules stand here
//! under the same names.
//!
//! | module | what |
//! |---|---|
//! | [`api`], [`definition`], [`packed`], [`shared_map`] | of the core |
//! | [`git`] | all that knows Git: ask, fetch, read trees without a checkout |
//! | [`net`] | whom this process may dial, and the one dialler (its policy is pure) |
//! | [`sync`] | the core's engine, and [`sync::driver`] that does what it asks for |
//! | [`cluster`] | the only code that talks to Kubernetes; the live stores are the core's |
//! | [`fair`] | whose turn it is among namespaces (pure) |
//! | [`runtime`] | queues and workers of everything that reconciles |
//! | [`controllers`] | one folder a kind: resolve → validate → desired → apply → status |
//! | [`http`] | health, readiness, metrics |
//! | [`cli`] | one file a command; the only code that prints |
//!
//! Pure modules of this package start with `#![deny(clippy::disallowed_types, clippy::disallowed_methods)]`, and
//! `clippy.toml` lists what that forbids.

pub use convoke_core::{api, definition, packed, shared_map};

pub mod cli;
pub mod cluster;
pub mod controllers;
pub mod fair;
pub mod git;
pub mod http;
pub mod net;
pub mod runtime;
pub mod sync;
