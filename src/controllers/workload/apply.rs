//! Step "apply": writes the children, and looks at what is there afterwards.

use k8s_openapi::api::apps::v1::Deployment;

use super::Workload;
use super::keys::Keyed;
use super::outcome::{Applied, Outcome};
use super::pod_template::image_of;
use super::validate::Invalid;
use crate::controllers::children::{Children, Owner, Wanted, bring};
use crate::controllers::context::Context;

/// What the steps before have decided on.
pub struct Decided<'a> {
    /// What is to become of the children.
    pub children: &'a Children,
    /// The Deployment as it was then, if it belongs to the object.
    pub live: Option<&'a Deployment>,
    /// Whether the spec is valid.
    pub validated: Result<(), Invalid>,
    /// What became of the keys, and what is to be told of what pods read.
    pub keyed: Keyed,
}

/// Brings the children of an object where they should be. A failure is part of the answer: the status tells it. `None`: the
/// Deployment has gone meanwhile, and all is to be decided on again.
pub async fn apply<W: Workload>(
    context: &Context,
    owner: &Owner<'_>,
    decided: Decided<'_>,
) -> Option<Applied> {
    let stores = &context.children;
    let Decided { children, live, validated, keyed } = decided;
    let Keyed { inputs, taken, failed, differ: _ } = keyed;
    let brought = bring(&context.writer, stores, owner, children, live).await;
    let (outcome, deployment) = match brought.transpose()? {
        Ok(mut brought) => {
            context.events.rollout::<W::Object>(owner, brought.wrote);
            brought.taken.extend(taken);
            let outcome = match (validated, failed) {
                (Err(invalid), _) => Outcome::Invalid(invalid),
                (Ok(()), Some(error)) => Outcome::Failed(error.into()),
                (Ok(()), None) if brought.taken.is_empty() => Outcome::Done,
                (Ok(()), None) => Outcome::NamesTaken(brought.taken),
            };
            (outcome, brought.deployment)
        }
        Err(error) => (Outcome::Failed(error.into()), owner.live_deployment(stores)),
    };
    let deployment = deployment.as_ref();
    Some(Applied {
        outcome,
        observed: deployment.map(|live| context.observe(owner.kind, owner.key, live)),
        image: deployment.and_then(image_of),
        has_service: stores.has_service(owner.uid, &owner.child),
        inputs,
        is_held: children.deployment == Wanted::Keep,
        rollout: None,
        rolled_back: None,
    })
}
