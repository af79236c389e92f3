//! Step "apply": writes the children, and looks at what is there afterwards.

use super::Workload;
use super::keys::Keyed;
use super::outcome::{Applied, Outcome};
use super::pod_template::image_of;
use super::validate::Invalid;
use crate::controllers::children::{Children, Owner, bring};
use crate::controllers::context::Context;

/// Brings the children of an object where they should be. A failure is part of the answer: the status tells it.
///
/// `validated` and `keyed` are what the steps before have found. They belong to what the status tells.
pub async fn apply<W: Workload>(
    context: &Context,
    owner: &Owner<'_>,
    children: &Children,
    validated: Result<(), Invalid>,
    keyed: Keyed,
) -> Applied {
    let stores = &context.children;
    let Keyed { inputs, taken, failed } = keyed;
    let (outcome, deployment) = match bring(&context.writer, stores, owner, children).await {
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
    Applied {
        outcome,
        observed: deployment.map(|live| context.observe(owner.kind, owner.key, live)),
        image: deployment.and_then(image_of),
        has_service: stores.has_service(owner.uid, &owner.child),
        inputs,
    }
}
