//! Follows the inputs of one object in a reconcile: puts the annotation into the wanted Deployment, or holds the Deployment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use tokio::time::Instant;

use super::decide::{Decision, InputState, decide};
use super::digest::Components;
use super::input_watch::InputWatch;
use super::references::{Own, Reference, References, Source, Use};
use super::report::{Followed, WatchState, WatchStates};
use super::{Inputs, KeyState};
use crate::api::{Kind, keys};
use crate::cluster::client::jitter;
use crate::cluster::meta;
use crate::cluster::store::Key;
use crate::controllers::children::{Children, Wanted};

/// How long a reconcile waits for a watch that has just begun. Without the wait, the first Deployment would be changed again at
/// once.
const MAX_WAIT_FOR_WATCH: Duration = Duration::from_secs(5);
/// Objects that one reconcile asks the API server for, because no watch shows them.
const MAX_OBJECTS_ASKED_FOR: usize = 32;
/// When the API server is asked again for an object that no watch shows.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How long one reconcile asks the API server for objects, all together.
const MAX_TIME_ASKING: Duration = Duration::from_secs(10);

/// The requests that one reconcile may still send for objects that no watch shows.
pub(super) struct Questions {
    pub left: usize,
    pub until: Instant,
}

/// Where the state of one object's inputs comes from.
struct View<'a> {
    namespace: &'a str,
    key: &'a KeyState,
    secrets: Option<&'a Arc<InputWatch>>,
}

impl Inputs {
    /// Puts the annotation into the wanted Deployment of an object, and returns the conditions about its inputs. `live` is the
    /// Deployment as it is, if it belongs to the object. `own_map` is the ConfigMap that its pods mount and Convoke made.
    ///
    /// When pods may not read an input, or cannot start without one that is missing, the Deployment is held: none is made, and
    /// none is changed. The Service and the ConfigMap of pods that run stay with it. What already is as wanted is not held: nothing
    /// new is read by it, and what somebody changes or deletes of it is undone.
    pub async fn follow(
        self: &Arc<Self>,
        kind: Kind,
        key: &Key,
        live: Option<&Deployment>,
        children: &mut Children,
        own_map: Option<&str>,
    ) -> Followed {
        // The variable of an agent only: a model proxy reads its keys as files.
        let own_key = children.keys.secret().filter(|_| kind == Kind::Agent).map(str::to_owned);
        let deployment = match &mut children.deployment {
            Wanted::Bring(deployment) => deployment,
            // The pods go on with what they read.
            Wanted::Keep => return Followed::unchanged(),
            Wanted::Remove => {
                self.forget(kind, key);
                return Followed::nothing();
            }
        };
        let Some(spec) = &mut deployment.spec else { return Followed::unchanged() };
        let own = Own { config_map: own_map, agent_key: own_key.as_deref() };
        let references = References::of(&spec.template, own);
        // Before the stores are read, so that a change in between wakes the object again.
        self.remember(kind, key, references.clone());
        if references.is_empty() {
            return Followed::nothing();
        }
        let namespace = key.namespace.as_str();
        let secrets = self
            .namespaces()
            .get(namespace)
            .and_then(|here| Some(here.secrets.as_ref()?.0.clone()));
        let mac_key = self.settled(&references, secrets.as_deref()).await;
        let running = live;
        let live = running.and_then(annotation).map(Components::parse).unwrap_or_default();

        let view = View { namespace, key: &mac_key, secrets: secrets.as_ref() };
        let states = self.states(&view, &references, &live).await;
        let decision = decide(&references, &live, |reference| {
            states.get(reference).cloned().unwrap_or(InputState::Unknown)
        });
        self.check_again(kind, key, &decision);
        // A Deployment without pods needs no inputs.
        let has_pods = spec.replicas != Some(0);
        if let Some(text) = decision.components.text() {
            let metadata = spec.template.metadata.get_or_insert_default();
            metadata.annotations.get_or_insert_default().insert(keys::INPUTS.to_owned(), text);
            *deployment = meta::with_hash(std::mem::take(deployment));
        }
        let is_unchanged =
            running.is_some_and(|running| is_made_from_the_same(running, deployment));
        let is_held = decision.refuses() && has_pods && !is_unchanged;
        let config_maps = watch_state(&mac_key, Some(&self.config_maps));
        let secrets = watch_state(&mac_key, secrets.as_ref());
        let watches = WatchStates { config_maps: &config_maps, secrets: &secrets };
        let operator = &self.operator;
        let followed = Followed::of(&references, &decision, watches, namespace, operator);
        if !is_held {
            return followed;
        }
        children.hold(running.is_some());
        followed.holding()
    }

    /// Wakes the object later if its inputs may change without an event of a watch.
    fn check_again(&self, kind: Kind, key: &Key, decision: &Decision) {
        if decision.is_to_be_checked_again()
            && let Some(queue) = self.queues.get().and_then(|queues| queues.get(&kind))
        {
            queue.add_after(key.clone(), jitter(ASK_AGAIN_AFTER));
        }
    }

    /// Waits a moment for the key and for watches that have just begun. Returns the state of the key.
    async fn settled(&self, references: &References, secrets: Option<&InputWatch>) -> KeyState {
        let maps = references.any(Source::ConfigMap).then_some(self.config_maps.as_ref());
        let mut keys = self.key.subscribe();
        let wait = async {
            let known = keys.wait_for(|key| !matches!(key, KeyState::Starting)).await;
            if known.is_ok_and(|key| matches!(*key, KeyState::Known(_))) {
                for watch in [maps, secrets].into_iter().flatten() {
                    let mut state = watch.state.subscribe();
                    let _ = state.wait_for(|state| *state != WatchState::Starting).await;
                }
            }
        };
        let _ = tokio::time::timeout(MAX_WAIT_FOR_WATCH, wait).await;
        self.key.borrow().clone()
    }

    /// The state of each input.
    async fn states(
        &self,
        view: &View<'_>,
        references: &References,
        live: &Components,
    ) -> BTreeMap<Reference, InputState> {
        let until = Instant::now() + MAX_TIME_ASKING;
        let mut questions = Questions { left: MAX_OBJECTS_ASKED_FOR, until };
        let mut all = BTreeMap::new();
        for (reference, used) in references.iter() {
            let watch = match reference.source {
                Source::ConfigMap => Some(&self.config_maps),
                Source::Secret => view.secrets,
            };
            let mut state = watched_state(view, watch, reference, used);
            let is_new = !live.0.contains_key(reference);
            if reference.is_made() && !matches!(state, InputState::Digest(_)) {
                state = self.made(view.namespace, reference, &mut questions).await;
            } else if state == InputState::MissingOrUnlabelled {
                state = self.unwatched(view.namespace, reference, used, &mut questions).await;
            } else if state == InputState::Unknown && !is_forbidden(watch) {
                // The watch does not work, or there is no key for digests: the label can be asked for all the same.
                let asked = self.unwatched(view.namespace, reference, used, &mut questions).await;
                if asked != InputState::MissingOrUnlabelled {
                    state = asked;
                }
            } else if state == InputState::OverBudget && is_new {
                // Of what is not kept it is not known whether it has the label.
                let asked = self.unwatched(view.namespace, reference, used, &mut questions).await;
                if asked == InputState::Unlabelled {
                    state = asked;
                }
            } else if state == InputState::OverBudget
                && !used.required
                && live.0.contains_key(reference)
                && matches!(self.metadata(view.namespace, reference).await, Ok(None))
            {
                state = InputState::OptionalMissing;
            }
            all.insert(reference.clone(), state);
        }
        all
    }
}

/// The state of an input, as far as its watch shows it.
fn watched_state(
    view: &View<'_>,
    watch: Option<&Arc<InputWatch>>,
    reference: &Reference,
    used: &Use,
) -> InputState {
    let (KeyState::Known(key), Some(watch)) = (view.key, watch) else { return InputState::Unknown };
    if *watch.state.borrow() != WatchState::Watching {
        return InputState::Unknown;
    }
    let namespace = view.namespace;
    let object = Key::new(namespace, &reference.name);
    match watch.store.get(&object) {
        Some(entry) => InputState::Digest(key.component(namespace, reference, used, &entry.value)),
        None if watch.budget().is_left_out(&object) => InputState::OverBudget,
        None => InputState::MissingOrUnlabelled,
    }
}

/// Whether the operator may not look at such objects in this namespace.
fn is_forbidden(watch: Option<&Arc<InputWatch>>) -> bool {
    watch.is_some_and(|watch| matches!(*watch.state.borrow(), WatchState::Forbidden))
}

/// The state of a watch for conditions. Without a key there are no watches.
fn watch_state(key: &KeyState, watch: Option<&Arc<InputWatch>>) -> WatchState {
    match key {
        KeyState::Starting => WatchState::Starting,
        KeyState::None(why) => WatchState::NoKey(why.clone()),
        KeyState::Known(_) => watch.map(|watch| watch.state.borrow().clone()).unwrap_or_default(),
    }
}

/// Whether two Deployments were made from the same: by the hashes of all that Convoke wants of them.
#[must_use]
pub fn is_made_from_the_same(one: &Deployment, other: &Deployment) -> bool {
    let hash = |deployment: &Deployment| {
        deployment.metadata.annotations.as_ref()?.get(keys::CHILD_HASH).cloned()
    };
    hash(one) == hash(other)
}

/// The annotation of a Deployment's pods.
fn annotation(deployment: &Deployment) -> Option<&str> {
    let template = deployment.spec.as_ref()?.template.metadata.as_ref()?;
    template.annotations.as_ref()?.get(keys::INPUTS).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::super::digest::MacKey;
    use super::*;

    #[tokio::test]
    async fn a13_what_is_merely_missing_is_not_beyond_the_budget() {
        let watch = InputWatch::new(Source::ConfigMap, 10);
        watch.state.send_replace(WatchState::Watching);
        let key = KeyState::Known(Arc::new(MacKey::new(&[7; 32])));
        assert!(!watch.budget().admit(&Key::new("team", "large"), 0, 11));
        let view = View { namespace: "team", key: &key, secrets: None };
        let state = |name: &str| {
            let reference = Reference { source: Source::ConfigMap, name: name.into() };
            watched_state(&view, Some(&watch), &reference, &Use::default())
        };
        assert!(matches!(state("large"), InputState::OverBudget));
        assert!(matches!(state("missing"), InputState::MissingOrUnlabelled));
    }
}
