//! The kinds that run pods: Agent, ModelAPI and MCPServer. They have one reconcile, in `reconcile.rs`, over the trait
//! [`Workload`].
//!
//! ```text
//! resolve ─► validate ─► desired ──► inputs ─► keys ───► apply ─► status ─► retain
//! what it    is the      children,   digests   write     write    what      which
//! refers to  spec valid  or the last of what   the       the      runs      children
//!                        good ones   pods read Secret    others   now       may go
//! ```

mod apply;
pub mod built_image;
mod go_back;
mod keys;
pub mod outcome;
pub mod pod_health;
pub mod pod_template;
mod reconcile;
mod retention;
pub mod rollout;
pub mod serving;
pub mod validate;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

pub use self::reconcile::{Controller, ReconcileError};

use self::outcome::Applied;
use self::rollout::Newest;
use self::validate::Invalid;
use super::children::Children;
use super::context::Context;
use super::defaults::Defaults;
use super::discovery::Question;
use super::events::Standing;
use crate::api::Kind;
use crate::api::rollout::RolloutStatus;
use crate::cluster::live::{Managed, Ours, Stores};
use crate::cluster::store::{Key, Store};
use crate::runtime::queue::Queue;

/// A kind that runs pods. Each step of its reconcile is one function here.
///
/// AgentBuild is no `Workload`: it has no Deployment, Service or ConfigMap, and nothing that its pods read. Its only child is a
/// PipelineRun that is created once and never changed. Its reconcile has the steps resolve, desired, apply and status under the
/// same names, and the same writer of statuses ([`super::status`]).
pub trait Workload: Send + Sync + 'static {
    /// The type of the objects.
    type Object: Ours;
    /// What an object refers to, looked up.
    type Resolved: Send + Sync;
    /// The type of the status.
    type Status: Serialize + PartialEq + Standing + Send + Sync;
    /// The kind of the objects.
    const KIND: Kind;

    /// The store of the kind.
    fn store(stores: &Stores) -> &Arc<Store<Managed<Self::Object>>>;

    /// The name of the Deployment and the Service of an object.
    fn child_name(name: &str) -> String;

    /// The name of the Secret with the keys of an object's pods. `None` for a kind whose pods never have any.
    #[must_use]
    fn secret_name(_name: &str) -> Option<String> {
        None
    }

    /// Puts objects on the queue when something changes that they refer to. Changes of the objects themselves, of their children
    /// and of their pods need no listener here.
    fn listen(_context: &Context, _queue: &Arc<Queue>) {}

    /// Step "resolve": looks up what an object refers to.
    fn resolve(object: &Self::Object, context: &Context) -> Self::Resolved;

    /// Decides which changes of what was resolved are not acted on yet, because they may be undone in a moment.
    fn debounce(
        &self,
        _key: &Key,
        _object: &Self::Object,
        resolved: Self::Resolved,
    ) -> Debounced<Self::Resolved> {
        Debounced { resolved, look_again: None }
    }

    /// The keys that the pods were given are to be replaced by others with the next reconcile.
    fn renew_keys(&self, _object: &Self::Object, _resolved: &Self::Resolved) {}

    /// Step "validate": checks what the schema does not check. The children of an invalid object stay as they are.
    ///
    /// # Errors
    /// Everything that is wrong.
    fn validate(_object: &Self::Object) -> Result<(), Invalid> {
        Ok(())
    }

    /// Step "desired": what the children are to be like.
    fn desired(object: &Self::Object, resolved: &Self::Resolved, defaults: &Defaults) -> Children;

    /// The revision that an object is to run, if a rollout of it that fails goes back to the last good one.
    #[must_use]
    fn newest(_object: &Self::Object, _resolved: &Self::Resolved) -> Option<Newest> {
        None
    }

    /// What the status of an object remembers of its rollouts.
    #[must_use]
    fn rollout(_object: &Self::Object) -> Option<&RolloutStatus> {
        None
    }

    /// The status that an object has now.
    fn current_status(object: &Self::Object) -> Option<&Self::Status>;

    /// Step "status": what to tell after the children were applied.
    fn status(
        object: &Self::Object,
        resolved: &Self::Resolved,
        applied: &Applied,
        defaults: &Defaults,
        now: Timestamp,
    ) -> Self::Status;

    /// What an object's pods or its address are asked, beyond what Kubernetes says of them. Its children are as wanted.
    fn question(
        object: &Self::Object,
        children: &Children,
        defaults: &Defaults,
    ) -> Option<Question>;

    /// The object of this key is gone: nothing is kept of it.
    fn forget(&self, _key: &Key) {}
}

/// What was resolved, as far as it is acted on now.
pub struct Debounced<R> {
    /// What the next steps go on with.
    pub resolved: R,
    /// The time after which the object is reconciled again; `None` when nothing is held back.
    pub look_again: Option<Duration>,
}
