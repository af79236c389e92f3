//! Inputs are the ConfigMaps and Secrets that pods read besides our own children. When one changes, the pods that read it are
//! replaced, and no others. When one is missing or may not be read, no pods are made.
//!
//! ```text
//! pod template ──references──► objects that are read ─┐
//! watches (digests of values only) ───────────────────┼─► decide ─► annotation on the pods
//! annotation of the live Deployment ──────────────────┘      └────► report ─► conditions on the owner
//! ```
//!
//! Pods may read only objects with the label `convoke.dev/agents=allow`, and only these are watched: all ConfigMaps by one
//! watch, and Secrets by one watch for each namespace. Secrets of a namespace are watched only while a pod there reads one, and
//! only if a RoleBinding allows it. Values are hashed with the operator's key as they arrive, and then dropped. Of each
//! namespace only a limited number of digests is kept (`input_watch`).

pub mod decide;
pub mod digest;
mod follow;
mod input_watch;
pub mod key;
pub mod references;
pub mod report;
mod unwatched;
pub mod watched;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::follow::is_made_from_the_same;

use self::digest::{Digests, MacKey};
use self::input_watch::{Affected, InputWatch, MAX_PAUSE_WHILE_FORBIDDEN};
use self::references::{Reference, References, Source};
use self::report::Followed;
use self::watched::{WatchedConfigMap, WatchedSecret};
use convoke_core::cluster::account::OperatorAccount;

use crate::api::Kind;
use crate::cluster::client::jitter;
use crate::cluster::reflector::entry_of;
use crate::cluster::store::{Change, Entry, Key};
use crate::runtime::queue::Queue;

/// The pause after the first failure to get the key.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Failures in a row to get the key before conditions report one that may pass.
const FAILURES_BEFORE_REPORT: u32 = 3;
/// How long a reconcile waits until it is known whether there is a key.
const MAX_WAIT_FOR_KEY: Duration = Duration::from_secs(5);

/// The state of the operator's key for digests.
#[derive(Debug, Clone)]
enum KeyState {
    /// The key was not asked for yet.
    Starting,
    /// The key is here.
    Known(Arc<MacKey>),
    /// There is no key, for this reason.
    None(String),
}

/// The objects of one namespace whose pods read inputs.
#[derive(Default)]
struct Namespace {
    /// What the pods of each object read.
    owners: HashMap<(Kind, String), References>,
    /// The watch of the namespace's Secrets, while a pod reads one. Dropping the tasks ends the watch.
    secrets: Option<(Arc<InputWatch>, JoinSet<()>)>,
}

/// The ConfigMaps and Secrets that the pods of all our objects read.
pub struct Inputs {
    client: Client,
    operator_namespace: String,
    operator: OperatorAccount,
    max_keys: usize,
    key: watch::Sender<KeyState>,
    config_maps: Arc<InputWatch>,
    namespaces: Mutex<HashMap<String, Namespace>>,
    /// The objects that are woken when there is a key.
    waiting_for_key: Mutex<HashSet<(Kind, Key)>>,
    queues: OnceLock<BTreeMap<Kind, Arc<Queue>>>,
}

impl Inputs {
    /// Watches nothing until [`Inputs::run`] runs. `operator_namespace` holds the key, and `operator` is the account that needs
    /// rights. `max_keys` is the budget of each namespace for ConfigMaps, and the same for Secrets.
    #[must_use]
    pub fn new(
        client: Client,
        operator_namespace: String,
        operator: OperatorAccount,
        max_keys: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            operator_namespace,
            operator,
            max_keys,
            key: watch::Sender::new(KeyState::Starting),
            config_maps: InputWatch::new(Source::ConfigMap, max_keys),
            namespaces: Mutex::default(),
            waiting_for_key: Mutex::default(),
            queues: OnceLock::new(),
        })
    }

    /// Sets the queues of the objects whose inputs change. Only the first call counts.
    pub fn notify(&self, queues: BTreeMap<Kind, Arc<Queue>>) {
        let _ = self.queues.set(queues);
    }

    fn namespaces(&self) -> MutexGuard<'_, HashMap<String, Namespace>> {
        self.namespaces.lock()
    }

    /// Gets the key, then watches ConfigMaps, for ever.
    pub async fn run(self: Arc<Self>) {
        let key = self.obtain_key().await;
        self.key.send_replace(KeyState::Known(key.clone()));
        self.wake_all(|references| !references.is_empty());
        let waiting = std::mem::take(&mut *self.waiting_for_key.lock());
        for (kind, waiting) in waiting {
            if let Some(queue) = self.queues.get().and_then(|queues| queues.get(&kind)) {
                queue.add(waiting);
            }
        }
        let watch = self.config_maps.clone();
        let api: Api<WatchedConfigMap> = Api::all(self.client.clone());
        let view = |map: WatchedConfigMap| map.digests(&key);
        let read = |text: &str| serde_json::from_str(text).map(|map| entry_of(map, view));
        self.watch(api, watch, read).await;
    }

    /// Waits a moment until it is known whether there is a key. Afterwards that is always known.
    pub async fn key_settled(&self) {
        let mut keys = self.key.subscribe();
        let asked = keys.wait_for(|state| !matches!(state, KeyState::Starting));
        let _ = tokio::time::timeout(MAX_WAIT_FOR_KEY, asked).await;
    }

    /// The operator's key, for an object that needs keys made from it.
    ///
    /// # Errors
    /// Why there is none. The object is woken when there is one.
    pub fn operator_key(&self, kind: Kind, key: &Key) -> Result<Arc<MacKey>, String> {
        // Locked before the look: a key that comes meanwhile wakes the object.
        let mut waiting = self.waiting_for_key.lock();
        let why = match &*self.key.borrow() {
            KeyState::Known(mac) => return Ok(mac.clone()),
            KeyState::Starting => "the operator's key was not read yet".to_owned(),
            KeyState::None(why) => why.clone(),
        };
        waiting.insert((kind, key.clone()));
        Err(why)
    }

    /// Lets conditions report that the operator may not write the keys of an object's pods.
    #[must_use]
    pub fn without_right_to_keys(&self, followed: Followed, namespace: &str) -> Followed {
        followed.without_right_to_keys(namespace, &self.operator)
    }

    /// Tries until there is a key.
    async fn obtain_key(&self) -> Arc<MacKey> {
        let (mut pause, mut failures) = (FIRST_PAUSE, 0);
        loop {
            match key::obtain(&self.client, &self.operator_namespace).await {
                Ok(key) => return Arc::new(key),
                Err(error) => {
                    failures += 1;
                    let retry_in = jitter(pause);
                    tracing::warn!(%error, ?retry_in, "changes of ConfigMaps and Secrets replace no pods");
                    // A failure that passes soon is not worth a condition on every object.
                    if error.is_lasting() || failures >= FAILURES_BEFORE_REPORT {
                        self.report_no_key(error.to_string());
                    }
                    tokio::time::sleep(retry_in).await;
                    pause = (2 * pause).min(MAX_PAUSE_WHILE_FORBIDDEN);
                }
            }
        }
    }

    /// Watches the objects of one kind, in all namespaces or in one, for ever.
    async fn watch<K>(
        self: &Arc<Self>,
        api: Api<K>,
        watch: Arc<InputWatch>,
        read: impl Fn(&str) -> serde_json::Result<(Key, Entry<Digests>)>,
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        self.listen(&watch);
        let source = watch.source;
        let reads = |references: &References| references.any(source);
        let wake = |affected: Affected<'_>| match affected {
            Affected::All => self.wake_all(reads),
            Affected::Namespace(namespace) => self.wake(namespace, reads),
            Affected::Readers(key) => self.wake_readers(source, key),
        };
        watch.run(&self.client, api, read, wake).await;
    }

    /// Lets conditions report that there is no key. Objects are woken if the reason is new.
    fn report_no_key(&self, why: String) {
        let is_new = self.key.send_if_modified(|state| {
            let is_new = !matches!(state, KeyState::None(have) if *have == why);
            *state = KeyState::None(why);
            is_new
        });
        if is_new {
            self.wake_all(|references| !references.is_empty());
        }
    }

    /// Watches the Secrets of one namespace, for ever.
    async fn run_secrets(self: Arc<Self>, namespace: String, watch: Arc<InputWatch>) {
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

    /// Wakes the objects whose pods read a value that changes. Changes of labels and annotations wake nobody.
    fn listen(self: &Arc<Self>, watch: &Arc<InputWatch>) {
        let (inputs, source) = (Arc::downgrade(self), watch.source);
        let counted = Arc::downgrade(watch);
        watch.store.on_change(move |change: &Change<'_, Digests>| {
            if let Some(watch) = counted.upgrade() {
                watch.changed(change);
            }
            let is_same = matches!((change.old, change.new), (Some(old), Some(new)) if old.value == new.value);
            if let Some(inputs) = inputs.upgrade().filter(|_| !is_same) {
                inputs.wake_readers(source, change.key);
            }
        });
    }

    /// Wakes the objects whose pods read this ConfigMap or Secret.
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

    /// Forgets an object that is gone, or that has no pods.
    pub fn forget(self: &Arc<Self>, kind: Kind, key: &Key) {
        self.remember(kind, key, References::default());
    }

    /// Remembers what the pods of an object read, so that changes wake it. Begins or ends the watch of the namespace's Secrets.
    fn remember(self: &Arc<Self>, kind: Kind, key: &Key, references: References) {
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
            let watch = InputWatch::new(Source::Secret, self.max_keys);
            let mut tasks = JoinSet::new();
            tasks.spawn(self.clone().run_secrets(key.namespace.clone(), watch.clone()));
            here.secrets = Some((watch, tasks));
        }
        if here.owners.is_empty() {
            namespaces.remove(&key.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn references(secret: &str) -> References {
        let env =
            json!([{"name": "K", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]);
        let template = json!({"spec": {"containers": [{"name": "c", "env": env}]}});
        let template = serde_json::from_value(template).expect("template");
        References::of(&template, references::Own::default())
    }

    #[tokio::test]
    async fn a13_secrets_are_watched_only_while_somebody_reads_one() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let nowhere = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        let client = Client::try_from(nowhere).expect("client");
        let inputs = Inputs::new(client, "ops".into(), OperatorAccount::new("ops"), 10);
        let queue = Queue::new();
        inputs.notify(BTreeMap::from([(Kind::Agent, queue.clone())]));
        let watched =
            |namespace: &str| inputs.namespaces().get(namespace).map(|here| here.secrets.is_some());
        let (one, two) = (Key::new("team", "one"), Key::new("team", "two"));
        inputs.remember(Kind::Agent, &one, references("s"));
        inputs.remember(Kind::Agent, &two, references("t"));
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
