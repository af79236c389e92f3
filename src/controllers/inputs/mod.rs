//! What pods read besides our own children: ConfigMaps and Secrets of their namespace. When one changes, the pods that
//! read it are replaced, and no others. Where one is missing or may not be read, no pods are made.
//!
//! ```text
//! pod template ──references──► what is read ─┐
//! watches (digests of values only) ──────────┼─► decide ─► annotation on the pods, conditions on the owner
//! annotation of the live Deployment ─────────┘
//! ```
//!
//! Only objects with the label `convoke.dev/agents=allow` may be read, and are followed: ConfigMaps by one watch, Secrets by one watch a
//! namespace, only where a RoleBinding allows it, and only while somebody there reads a Secret. Values are hashed with
//! the operator's key as they arrive, and dropped. Of each namespace only so many digests are kept (`seen`).

mod asked;
pub mod decide;
pub mod digest;
pub mod key;
pub mod references;
mod seen;
mod watched;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client, Resource};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::decide::{Followed, Found, State, decide};
use self::digest::{Components, Digests, MacKey};
use self::references::{Reference, References, Source, Use};
use self::seen::{Concerns, FORBIDDEN, Watch};
use self::watched::{WatchedConfigMap, WatchedSecret};
use super::children::{Children, Wanted};
use crate::api::{Kind, keys};
use crate::cluster::client::jitter;
use crate::cluster::meta;
use crate::cluster::reflector::entry_of;
use crate::cluster::store::{Change, Entry, Key};
use crate::runtime::queue::Queue;

/// Longest time that a reconcile waits for a watch that has just begun: else its first Deployment would be changed
/// again at once.
const SETTLE: Duration = Duration::from_secs(5);
/// The pause after the first failure to get the key.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Failures in a row to get the key until it is told, when they may pass.
const FAILURES: u32 = 3;
/// Objects that one reconcile asks for by name, because no watch shows them.
const MOST_ASKED: usize = 32;
/// How long after that it is asked again, when the answer may change and no watch tells.
const ASK_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
enum KeyState {
    Starting,
    Known(Arc<MacKey>),
    None(String),
}

#[derive(Default)]
struct Namespace {
    /// What the pods of each of our objects read.
    owners: HashMap<(Kind, String), References>,
    /// Its Secrets, while somebody reads one. Dropping the tasks ends the watch.
    secrets: Option<(Arc<Watch>, JoinSet<()>)>,
}

/// See the module.
pub struct Inputs {
    client: Client,
    operator_namespace: String,
    max_keys: usize,
    key: watch::Sender<KeyState>,
    config_maps: Arc<Watch>,
    namespaces: Mutex<HashMap<String, Namespace>>,
    queues: OnceLock<BTreeMap<Kind, Arc<Queue>>>,
}

impl Inputs {
    /// Nothing is followed until [`Inputs::run`] runs. `operator_namespace` holds the key. `max_keys` is the budget
    /// of each namespace, for ConfigMaps and for Secrets.
    #[must_use]
    pub fn new(client: Client, operator_namespace: String, max_keys: usize) -> Arc<Self> {
        Arc::new(Self {
            client,
            operator_namespace,
            max_keys,
            key: watch::Sender::new(KeyState::Starting),
            config_maps: Watch::new(Source::ConfigMap, max_keys),
            namespaces: Mutex::default(),
            queues: OnceLock::new(),
        })
    }

    /// Where objects are put whose pods read something that changed. Only the first call counts.
    pub fn notify(&self, queues: BTreeMap<Kind, Arc<Queue>>) {
        let _ = self.queues.set(queues);
    }

    fn namespaces(&self) -> MutexGuard<'_, HashMap<String, Namespace>> {
        self.namespaces.lock()
    }

    /// Gets the key, then follows ConfigMaps, for ever.
    pub async fn run(self: Arc<Self>) {
        let (mut pause, mut failures) = (FIRST_PAUSE, 0);
        let key = loop {
            match key::obtain(&self.client, &self.operator_namespace).await {
                Ok(key) => break Arc::new(key),
                Err(error) => {
                    failures += 1;
                    let retry_in = jitter(pause);
                    tracing::warn!(%error, ?retry_in, "changes of ConfigMaps and Secrets replace no pods");
                    // What passes at once is not worth a condition on every object.
                    if error.is_lasting() || failures >= FAILURES {
                        self.tell_no_key(error.to_string());
                    }
                    tokio::time::sleep(retry_in).await;
                    pause = (2 * pause).min(FORBIDDEN);
                }
            }
        };
        self.key.send_replace(KeyState::Known(key.clone()));
        self.wake_all(|references| !references.is_empty());
        let watch = self.config_maps.clone();
        let api: Api<WatchedConfigMap> = Api::all(self.client.clone());
        let view = |map: WatchedConfigMap| map.digests(&key);
        let read = |text: &str| serde_json::from_str(text).map(|map| entry_of(map, view));
        self.watch(api, watch, read).await;
    }

    /// Follows the objects of one kind, everywhere or in one namespace, for ever.
    async fn watch<K>(
        self: &Arc<Self>,
        api: Api<K>,
        watch: Arc<Watch>,
        read: impl Fn(&str) -> serde_json::Result<(Key, Entry<Digests>)>,
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        self.listen(&watch);
        let source = watch.source;
        let reads = |references: &References| references.any(source);
        let wake = |concerns: Concerns<'_>| match concerns {
            Concerns::All => self.wake_all(reads),
            Concerns::Namespace(namespace) => self.wake(namespace, reads),
            Concerns::Object(key) => self.wake_readers(source, key),
        };
        watch.run(&self.client, api, read, wake).await;
    }

    fn tell_no_key(&self, why: String) {
        let news = self.key.send_if_modified(|state| {
            let news = !matches!(state, KeyState::None(have) if *have == why);
            *state = KeyState::None(why);
            news
        });
        if news {
            self.wake_all(|references| !references.is_empty());
        }
    }

    /// Follows the Secrets of one namespace, for ever.
    async fn run_secrets(self: Arc<Self>, namespace: String, watch: Arc<Watch>) {
        let mut keys = self.key.subscribe();
        // The sender lives as long as self, so this cannot fail.
        let Ok(state) =
            keys.wait_for(|key| matches!(key, KeyState::Known(_))).await.map(|k| k.clone())
        else {
            return;
        };
        let KeyState::Known(key) = state else { return };
        let api: Api<WatchedSecret> = Api::namespaced(self.client.clone(), &namespace);
        let view = |secret: WatchedSecret| secret.digests(&key);
        let read = |text: &str| serde_json::from_str(text).map(|secret| entry_of(secret, view));
        self.watch(api, watch, read).await;
    }

    /// Changes of values wake whoever reads the object. Labels and annotations are no values.
    fn listen(self: &Arc<Self>, watch: &Arc<Watch>) {
        let (inputs, source) = (Arc::downgrade(self), watch.source);
        let counted = Arc::downgrade(watch);
        watch.store.on_change(move |change: &Change<'_, Digests>| {
            if let Some(watch) = counted.upgrade() {
                watch.changed(change);
            }
            let same = matches!((change.old, change.new), (Some(old), Some(new)) if old.value == new.value);
            if let Some(inputs) = inputs.upgrade().filter(|_| !same) {
                inputs.wake_readers(source, change.key);
            }
        });
    }

    /// Wakes those whose pods read this object.
    fn wake_readers(&self, source: Source, key: &Key) {
        let reference = Reference { source, name: key.name.clone() };
        self.wake(&key.namespace, |references| references.has(&reference));
    }

    fn wake(&self, namespace: &str, reads: impl Fn(&References) -> bool) {
        let namespaces = self.namespaces();
        let (Some(here), Some(queues)) = (namespaces.get(namespace), self.queues.get()) else {
            return;
        };
        for ((kind, name), references) in &here.owners {
            if reads(references)
                && let Some(queue) = queues.get(kind)
            {
                queue.add(Key::new(namespace, name));
            }
        }
    }

    fn wake_all(&self, reads: impl Fn(&References) -> bool) {
        let names: Vec<_> = self.namespaces().keys().cloned().collect();
        for name in names {
            self.wake(&name, &reads);
        }
    }

    /// The object is gone, or runs no pods.
    pub fn forget(self: &Arc<Self>, kind: Kind, key: &Key) {
        self.refer(kind, key, References::default());
    }

    /// Remembers what the pods of an object read, so that changes wake it; begins or ends the watch of Secrets.
    fn refer(self: &Arc<Self>, kind: Kind, key: &Key, references: References) {
        let mut namespaces = self.namespaces();
        let owner = (kind, key.name.clone());
        if references.is_empty() {
            let Some(here) = namespaces.get_mut(&key.namespace) else { return };
            here.owners.remove(&owner);
        } else {
            namespaces.entry(key.namespace.clone()).or_default().owners.insert(owner, references);
        }
        let Some(here) = namespaces.get_mut(&key.namespace) else { return };
        if !here.owners.values().any(|references| references.any(Source::Secret)) {
            here.secrets = None;
        } else if here.secrets.is_none() {
            let (watch, mut tasks) = (Watch::new(Source::Secret, self.max_keys), JoinSet::new());
            tasks.spawn(self.clone().run_secrets(key.namespace.clone(), watch.clone()));
            here.secrets = Some((watch, tasks));
        }
        if here.owners.is_empty() {
            namespaces.remove(&key.namespace);
        }
    }

    /// Puts into the wanted Deployment of an object what its pods read, and says what to tell of it. `live` is the
    /// Deployment as it is, if it belongs to the object. Where pods may not read something, or cannot start without
    /// something that is missing, no Deployment is made, and one that is there stays as it is.
    pub async fn follow(
        self: &Arc<Self>,
        kind: Kind,
        key: &Key,
        live: Option<&Deployment>,
        children: &mut Children,
    ) -> Followed {
        let own = children.config_map.get().and_then(|map| map.metadata.name.clone());
        let deployment = match &mut children.deployment {
            Wanted::Bring(deployment) => deployment,
            // What runs goes on with what it reads.
            Wanted::Keep => return Followed::unchanged(),
            Wanted::Remove => {
                self.forget(kind, key);
                return Followed::nothing();
            }
        };
        let Some(spec) = &mut deployment.spec else { return Followed::unchanged() };
        let references = References::of(&spec.template, own.as_deref());
        // Before the stores are read: a change that comes in between wakes the object again.
        self.refer(kind, key, references.clone());
        if references.is_empty() {
            return Followed::nothing();
        }
        let namespace = key.namespace.as_str();
        let secrets = self
            .namespaces()
            .get(namespace)
            .and_then(|here| Some(here.secrets.as_ref()?.0.clone()));
        let mac_key = self.settled(&references, secrets.as_deref()).await;
        let live = live.and_then(annotation).map(Components::parse).unwrap_or_default();

        let here = Here { namespace, key: &mac_key, secrets: secrets.as_ref() };
        let found = self.found(&here, &references, &live).await;
        let decision = decide(&references, &live, |reference| {
            found.get(reference).cloned().unwrap_or(Found::Unknown)
        });
        if decision.is_to_be_asked_again()
            && let Some(queue) = self.queues.get().and_then(|queues| queues.get(&kind))
        {
            queue.add_after(key.clone(), jitter(ASK_AGAIN));
        }
        // Pods that are not to be read nothing.
        let held = decision.refuses() && spec.replicas != Some(0);
        if let Some(text) = decision.components.text() {
            let metadata = spec.template.metadata.get_or_insert_default();
            metadata.annotations.get_or_insert_default().insert(keys::INPUTS.to_owned(), text);
            *deployment = meta::with_hash(std::mem::take(deployment));
        }
        let state = |watch: Option<&Arc<Watch>>| match &mac_key {
            KeyState::Starting => State::Starting,
            KeyState::None(why) => State::NoKey(why.clone()),
            KeyState::Known(_) => {
                watch.map(|watch| watch.state.borrow().clone()).unwrap_or_default()
            }
        };
        let (config_maps, secrets) = (state(Some(&self.config_maps)), state(secrets.as_ref()));
        let followed = Followed::of(
            &references,
            &decision,
            &config_maps,
            &secrets,
            namespace,
            &self.operator_namespace,
        );
        if !held {
            return followed;
        }
        // The configuration, too: no newer one takes the place of the one that pods have mounted.
        (children.deployment, children.config_map) = (Wanted::Keep, Wanted::Keep);
        followed.holding()
    }

    /// Waits a moment for watches that have just begun, and gives the key.
    async fn settled(&self, references: &References, secrets: Option<&Watch>) -> KeyState {
        let maps = references.any(Source::ConfigMap).then_some(self.config_maps.as_ref());
        let mut keys = self.key.subscribe();
        let wait = async {
            let known = keys.wait_for(|key| !matches!(key, KeyState::Starting)).await;
            if known.is_ok_and(|key| matches!(*key, KeyState::Known(_))) {
                for watch in [maps, secrets].into_iter().flatten() {
                    let mut state = watch.state.subscribe();
                    let _ = state.wait_for(|state| *state != State::Starting).await;
                }
            }
        };
        let _ = tokio::time::timeout(SETTLE, wait).await;
        self.key.borrow().clone()
    }

    /// What is known of each object that is read.
    async fn found(
        &self,
        here: &Here<'_>,
        references: &References,
        live: &Components,
    ) -> BTreeMap<Reference, Found> {
        let mut questions = MOST_ASKED;
        let mut all = BTreeMap::new();
        for (reference, used) in references.iter() {
            let watch = match reference.source {
                Source::ConfigMap => Some(&self.config_maps),
                Source::Secret => here.secrets,
            };
            let mut found = look(here.key, watch, here.namespace, reference, used);
            if found == Found::Absent {
                found = self.told_apart(here.namespace, reference, used, &mut questions).await;
            } else if found == Found::Beyond
                && !used.required
                && live.0.contains_key(reference)
                && matches!(self.metadata(here.namespace, reference).await, Ok(None))
            {
                found = Found::Gone;
            }
            all.insert(reference.clone(), found);
        }
        all
    }
}

/// Where what the pods of one object read is looked for.
struct Here<'a> {
    namespace: &'a str,
    key: &'a KeyState,
    secrets: Option<&'a Arc<Watch>>,
}

/// What is known of one object.
fn look(
    key: &KeyState,
    watch: Option<&Arc<Watch>>,
    namespace: &str,
    reference: &Reference,
    used: &Use,
) -> Found {
    let (KeyState::Known(key), Some(watch)) = (key, watch) else { return Found::Unknown };
    if *watch.state.borrow() != State::Watching {
        return Found::Unknown;
    }
    let object = Key::new(namespace, &reference.name);
    match watch.store.get(&object) {
        Some(entry) => Found::Holds(key.component(namespace, reference, used, &entry.value)),
        None if watch.budget().is_left_out(&object) => Found::Beyond,
        None => Found::Absent,
    }
}

/// What the pods of a Deployment say of what they read.
fn annotation(deployment: &Deployment) -> Option<&str> {
    let template = deployment.spec.as_ref()?.template.metadata.as_ref()?;
    template.annotations.as_ref()?.get(keys::INPUTS).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn references(secret: &str) -> References {
        let env =
            json!([{"name": "K", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]);
        let template = json!({"spec": {"containers": [{"name": "c", "env": env}]}});
        References::of(&serde_json::from_value(template).expect("template"), None)
    }

    #[tokio::test]
    async fn a13_what_is_merely_missing_is_not_beyond_the_budget() {
        let watch = Watch::new(Source::ConfigMap, 10);
        watch.state.send_replace(State::Watching);
        let key = KeyState::Known(Arc::new(MacKey::new(&[7; 32])));
        assert!(!watch.budget().admit(&Key::new("team", "large"), 0, 11));
        let found = |name: &str| {
            let reference = Reference { source: Source::ConfigMap, name: name.into() };
            look(&key, Some(&watch), "team", &reference, &Use::default())
        };
        assert!(matches!(found("large"), Found::Beyond));
        assert!(matches!(found("missing"), Found::Absent));
    }

    #[tokio::test]
    async fn a13_secrets_are_watched_only_while_somebody_reads_one() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let nowhere = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        let client = Client::try_from(nowhere).expect("client");
        let inputs = Inputs::new(client, "ops".into(), 10);
        let queue = Queue::new();
        inputs.notify(BTreeMap::from([(Kind::Agent, queue.clone())]));
        let watched =
            |namespace: &str| inputs.namespaces().get(namespace).map(|here| here.secrets.is_some());
        let (one, two) = (Key::new("team", "one"), Key::new("team", "two"));
        inputs.refer(Kind::Agent, &one, references("s"));
        inputs.refer(Kind::Agent, &two, references("t"));
        assert_eq!((watched("team"), watched("other")), (Some(true), None));

        let s = Reference { source: Source::Secret, name: "s".into() };
        inputs.wake("team", |references| references.has(&s));
        assert_eq!((queue.next().await, queue.len()), (one.clone(), 0), "only who reads it");

        inputs.forget(Kind::Agent, &one);
        assert_eq!(watched("team"), Some(true));
        inputs.forget(Kind::Agent, &two);
        assert_eq!(watched("team"), None, "nothing is left");
    }
}
