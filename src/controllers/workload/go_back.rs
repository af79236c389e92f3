//! Goes back to the last good revision, and remembers which one that is. What is decided is in `rollout.rs`.
//!
//! That a revision has failed is written into the status first; only the next reconcile goes back. So an operator that ends in between
//! does not try it again. ReplicaSets are read by name: when the status is to remember another one, and for as long as an object is gone
//! back, once a reconcile.

use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::Api;

use super::outcome::Applied;
use super::pod_template::image_of;
use super::rollout::{
    Found, Newest, Says, back, decide, has_failed, is_of_template, says, told, why,
};
use crate::api::rollout::{FailedRevision, GoodRevision, RolloutStatus};
use crate::cluster::client::{CallError, call};
use crate::controllers::children::{Children, Owner, Wanted};
use crate::controllers::context::Context;

/// The rollouts of one object.
pub struct Rollouts<'a> {
    context: &'a Context,
    owner: &'a Owner<'a>,
    /// The revision that is wanted. `None`: its rollouts are left alone.
    newest: Option<Newest>,
    /// What the status remembers of the Deployment that is there.
    record: RolloutStatus,
    /// Whether the last good revision is to run in place of the newest.
    pub is_back: bool,
}

impl<'a> Rollouts<'a> {
    /// What the status remembers, and what is wanted.
    #[must_use]
    pub fn of(
        context: &'a Context,
        owner: &'a Owner<'a>,
        newest: Option<Newest>,
        record: Option<&RolloutStatus>,
    ) -> Self {
        let deployment = deployment_uid(context, owner).unwrap_or_default();
        let record = record.filter(|record| record.deployment == deployment).cloned();
        let record = record.unwrap_or(RolloutStatus { deployment, ..RolloutStatus::default() });
        Self { context, owner, newest, record, is_back: false }
    }

    /// The ConfigMap that stays, whatever else is wanted.
    #[must_use]
    pub fn kept(&self) -> Option<&str> {
        self.record.last_good.as_ref()?.config_map.as_deref()
    }

    /// Puts the last good revision in place of the newest one if that has failed. If its pod template cannot be had any more, the
    /// Deployment stays as it is.
    ///
    /// # Errors
    /// When its ReplicaSet cannot be read now.
    pub async fn go_back(&mut self, children: &mut Children) -> Result<(), CallError> {
        let Some(newest) = &self.newest else { return Ok(()) };
        let (Some(good), true) = (&self.record.last_good, has_failed(&self.record, newest)) else {
            return Ok(());
        };
        let Wanted::Bring(wanted) = &children.deployment else { return Ok(()) };
        let is_stopped = wanted.spec.as_ref().is_some_and(|spec| spec.replicas == Some(0));
        let set = self.replica_set(&good.replica_set).await?;
        match set.and_then(|set| back(wanted, &set)) {
            Some(deployment) => {
                (children.deployment, children.config_map) =
                    (Wanted::Bring(deployment), Wanted::Keep);
            }
            // Whoever stops it means that.
            None if is_stopped => return Ok(()),
            None => children.hold(true),
        }
        self.is_back = true;
        Ok(())
    }

    /// Takes note of what the Deployment does after the children were applied, and tells it. Returns whether the newest revision has
    /// failed just now.
    ///
    /// # Errors
    /// When a ReplicaSet cannot be read now.
    pub async fn note(
        &mut self,
        children: &Children,
        applied: &mut Applied,
    ) -> Result<bool, CallError> {
        let Some(newest) = &self.newest else { return Ok(false) };
        let Some(deployment) = deployment_uid(self.context, self.owner) else { return Ok(false) };
        if self.record.deployment != deployment {
            self.record = RolloutStatus { deployment, ..RolloutStatus::default() };
        }
        let is_as_wanted = applied.is_as_wanted();
        let found =
            if is_as_wanted { self.find(newest, children, applied).await? } else { Found::Nothing };
        let record = decide(&self.record, newest, found);
        let has_just_failed = has_failed(&record, newest) && !has_failed(&self.record, newest);
        self.record = record;
        applied.is_held |= self.is_back;
        let observed = applied.observed.as_ref().filter(|observed| observed.wanted > 0);
        applied.rolled_back =
            observed.and_then(|now| told(&self.record, newest, self.is_back, now));
        applied.rollout = self.record.last_good.is_some().then(|| self.record.clone());
        Ok(has_just_failed)
    }

    /// Finds out what became of the revision that the Deployment has. Nothing is asked that changes nothing.
    async fn find(
        &self,
        newest: &Newest,
        children: &Children,
        applied: &Applied,
    ) -> Result<Found, CallError> {
        let Some(live) = self.owner.live_deployment(&self.context.children) else {
            return Ok(Found::Nothing);
        };
        let (set, found) = match says(&live) {
            Says::Nothing => return Ok(Found::Nothing),
            Says::Available(set) => {
                let config_map = children.config_map.get().and_then(|m| m.metadata.name.clone());
                let image = image_of(&live).unwrap_or_default();
                let replica_set = set.clone();
                let good =
                    GoodRevision { image, replica_set, config_map, ..GoodRevision::default() };
                (set, Found::Available(good))
            }
            Says::Exceeded(set, at) => {
                let (reason, message) = applied.observed.as_ref().map(why).unwrap_or_default();
                let image = newest.image.clone();
                let failed =
                    FailedRevision { image, reason, message, at, ..FailedRevision::default() };
                (set, Found::Exceeded(failed))
            }
        };
        if decide(&self.record, newest, found.clone()) == self.record {
            return Ok(Found::Nothing);
        }
        // It may be about the revision before.
        if !self.replica_set(&set).await?.is_some_and(|set| is_of_template(&set, &live)) {
            return Ok(Found::Nothing);
        }
        if matches!(found, Found::Exceeded(_)) && !self.has_way_back(children).await? {
            return Ok(Found::Nothing);
        }
        Ok(found)
    }

    /// Whether the pod template of the last good revision can be had.
    async fn has_way_back(&self, children: &Children) -> Result<bool, CallError> {
        let (Some(good), Wanted::Bring(wanted)) = (&self.record.last_good, &children.deployment)
        else {
            return Ok(false);
        };
        let set = self.replica_set(&good.replica_set).await?;
        Ok(set.is_some_and(|set| back(wanted, &set).is_some()))
    }

    /// A ReplicaSet of the Deployment, by name. `None` if there is none, or if none may be read.
    async fn replica_set(&self, name: &str) -> Result<Option<ReplicaSet>, CallError> {
        let client = self.context.client.clone();
        let sets = Api::<ReplicaSet>::namespaced(client, &self.owner.key.namespace);
        match call(sets.get(name)).await {
            Ok(set) => {
                let mut owners = set.metadata.owner_references.iter().flatten();
                let is_ours = owners.any(|owner| {
                    owner.controller == Some(true) && owner.uid == self.record.deployment
                });
                Ok(is_ours.then_some(set))
            }
            Err(error) if error.is_gone() || error.is_forbidden() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// UID of the Deployment of an object.
fn deployment_uid(context: &Context, owner: &Owner<'_>) -> Option<String> {
    let entry = context.children.deployments.get(&owner.child)?;
    (entry.value.owner_uid() == Some(owner.uid)).then(|| entry.uid.clone())
}
