//! Runs reconcilers: which object is worked on next, by how many workers, and what happens after a failure.
//!
//! Every reconciler has one [`queue`] of object keys and one [`worker`]. Watches add the keys of objects that changed. The
//! queue hands out each key once at a time, fairly among namespaces ([`crate::fair`]). The worker runs the reconciler
//! for the key with a deadline. After a failure it adds the key again with a backoff; after a success, with the resync
//! period. [`write_priority`] holds back the controllers of a namespace while a sync writes there.
//!
//! This folder knows nothing of Git, of kinds and of statuses. The sync engine and the controllers both stand on it. Fairness is not
//! part of it, because the shares of writes in [`crate::cluster::writes`] use it, too.

pub mod queue;
pub mod worker;
pub mod write_priority;
