//! Step "keys": writes the Secret with the keys that Convoke makes for pods, before the pods that read it.

use k8s_openapi::api::apps::v1::Deployment;

use crate::cluster::children::secrets::Secured;
use crate::cluster::client::CallError;
use crate::cluster::pods::PodProblem;
use crate::cluster::store::Key;
use crate::controllers::children::{Children, Keys, NamesTaken, Owner, Wanted};
use crate::controllers::context::Context;
use crate::controllers::inputs::is_made_from_the_same;
use crate::controllers::inputs::report::Followed;
use crate::controllers::key_marks::KeyMarks;

/// What step "keys" gives to step "apply".
pub struct Keyed {
    /// What to tell of what pods read: with what is to be told of their keys.
    pub inputs: Followed,
    /// The name of the Secret, if another one has it.
    pub taken: NamesTaken,
    /// Why the Secret could not be written, for a reason that may pass. Then nothing else is written either.
    pub failed: Option<CallError>,
    /// Whether the Secret has other values than the pods were given: other keys are to be issued before anything is written.
    pub differ: bool,
}

impl Keyed {
    fn tell(inputs: Followed) -> Self {
        Self { inputs, taken: NamesTaken::default(), failed: None, differ: false }
    }
}

/// Writes the Secret if it is wanted and the Deployment is to be written. Pods never run without the keys that they are to have:
/// as long as the Secret is not there, the Deployment is held. What already is as wanted is not held, because it reads nothing new,
/// nor is one whose pods are to end.
///
/// `live` is the Deployment as it is, if it belongs to the object.
pub async fn bring_keys(
    context: &Context,
    owner: &Owner<'_>,
    live: Option<&Deployment>,
    children: &mut Children,
    inputs: Followed,
) -> Keyed {
    if let (Keys::Unknown { .. }, Wanted::Bring(deployment)) =
        (&children.keys, &mut children.deployment)
        && let Some(given) = given(context, owner)
    {
        // The pods go on with the keys that they were given.
        *deployment = given.put(std::mem::take(deployment));
    }
    let Wanted::Bring(deployment) = &children.deployment else {
        return Keyed::tell(match &children.keys {
            Keys::None => inputs.with_keys(),
            Keys::Keep(_) | Keys::Bring(_) | Keys::Unknown { .. } => inputs,
        });
    };
    let needs_none = live
        .is_some_and(|live| is_made_from_the_same(live, deployment) || is_without_pods(deployment));
    let hold = |children: &mut Children| {
        if !needs_none {
            children.hold(live.is_some());
        }
    };
    let secured = match &children.keys {
        Keys::None => return Keyed::tell(inputs.with_keys()),
        Keys::Keep(_) => return Keyed::tell(inputs),
        Keys::Unknown { why, .. } => {
            let told = inputs.without_operator_key(why);
            hold(children);
            return Keyed::tell(if needs_none { told } else { told.holding() });
        }
        Keys::Bring(secret) => {
            if live.is_some_and(|live| lack_configuration(context, owner, live)) {
                context.writer.doubt_secret(&Key::of(&secret.meta));
            }
            let newest_pod = context.pods.newest_ready(owner.kind, owner.key);
            context.writer.bring_secret(secret, newest_pod).await
        }
    };
    match secured {
        Ok(Secured::Ours) => Keyed::tell(inputs.with_keys()),
        Ok(Secured::Differs) => Keyed { differ: true, ..Keyed::tell(inputs) },
        Ok(Secured::Forbidden) => {
            let told = context.inputs.without_right_to_keys(inputs, &owner.key.namespace);
            hold(children);
            Keyed::tell(if needs_none { told } else { told.holding() })
        }
        Ok(Secured::Conflict(who)) => {
            hold(children);
            let taken = NamesTaken { conflicts: vec![who], leftovers: Vec::new() };
            Keyed { taken, ..Keyed::tell(inputs) }
        }
        Ok(Secured::Leftover(which)) => {
            hold(children);
            let taken = NamesTaken { conflicts: Vec::new(), leftovers: vec![which] };
            Keyed { taken, ..Keyed::tell(inputs) }
        }
        Err(error) if needs_none => Keyed::tell(inputs.with_unconfirmed_keys(&error)),
        Err(error) => {
            // Agents that are gone lose their keys all the same.
            let agents = std::mem::replace(&mut children.agents, Wanted::Keep);
            *children = Children { agents, ..Children::kept() };
            Keyed { failed: Some(error), ..Keyed::tell(inputs) }
        }
    }
}

/// The keys that the pods of a live Deployment were given.
fn given(context: &Context, owner: &Owner<'_>) -> Option<KeyMarks> {
    let live = context.children.deployments.get(&owner.child)?;
    KeyMarks::of(&live.value).filter(|_| live.value.owner_uid() == Some(owner.uid))
}

/// Whether pods wait for something that they read. Nobody watches Secrets: one that was deleted by hand is missed by pods first.
fn lack_configuration(context: &Context, owner: &Owner<'_>, live: &Deployment) -> bool {
    let trouble = context.pods.trouble(owner.kind, owner.key, live);
    trouble.is_some_and(|trouble| trouble.reason == PodProblem::CreateContainerConfigError.reason())
}

/// Whether no pods are wanted.
fn is_without_pods(deployment: &Deployment) -> bool {
    deployment.spec.as_ref().is_some_and(|spec| spec.replicas == Some(0))
}

#[cfg(test)]
#[path = "tests/keys.rs"]
mod tests;
