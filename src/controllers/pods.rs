//! The one watch of pods. Only pods in trouble are kept; events of the others wake no controller.
//!
//! A Deployment says how many pods there are. Only the pod says why it does not run. Without the right to see pods everything goes
//! on, and statuses say what the Deployment says.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::api::{Kind, keys};
use crate::cluster::pods::{FailingPod, Trouble, read, term, trouble_of};
use crate::cluster::reflector::{self, WatchNews, WatchOptions};
use crate::cluster::store::{Key, Store};
use crate::runtime::queue::Queue;

/// The longest time that reconciles wait for the first list. Without it, statuses would take back the trouble of pods for a moment
/// after each start.
const MAX_FIRST_LIST_WAIT: Duration = Duration::from_secs(10);
/// The longest pause between two tries while the right to see pods is missing.
const MAX_PAUSE_WHILE_FORBIDDEN: Duration = Duration::from_secs(60);

/// Whether the store shows what is in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visibility {
    /// No list is complete yet.
    Starting,
    /// The store is up to date.
    Clear,
    /// Pods may not be seen, or the first list takes too long. What the store holds is not told.
    None,
}

/// The pods in trouble.
pub struct Pods {
    store: Arc<Store<FailingPod>>,
    sight: watch::Sender<Visibility>,
    queues: OnceLock<BTreeMap<Kind, Arc<Queue>>>,
}

impl Pods {
    /// A store that is empty until [`Pods::run`] runs.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            store: Store::indexed("Pod", FailingPod::terms),
            sight: watch::Sender::new(Visibility::Starting),
            queues: OnceLock::new(),
        })
    }

    /// Sets the queues of the objects whose pods come into trouble or out of it. Only the first call counts.
    pub fn notify(&self, queues: BTreeMap<Kind, Arc<Queue>>) {
        let _ = self.queues.set(queues);
    }

    /// Whether it is not known yet what pods there are, nor that they may not be seen.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        *self.sight.borrow() == Visibility::Starting
    }

    /// Waits for the first list, ten seconds at most.
    pub async fn settled(&self) {
        if !self.is_pending() {
            return;
        }
        let mut sight = self.sight.subscribe();
        let heard = sight.wait_for(|sight| *sight != Visibility::Starting);
        // The sender lives as long as self, so it is the time that ends this without an answer.
        if tokio::time::timeout(MAX_FIRST_LIST_WAIT, heard).await.is_err() {
            // Not what was heard in this moment.
            self.sight.send_if_modified(|sight| {
                let silent = *sight == Visibility::Starting;
                if silent {
                    *sight = Visibility::None;
                }
                silent
            });
        }
    }

    /// What is wrong with the newest pods of an object.
    #[must_use]
    pub fn trouble(&self, kind: Kind, key: &Key, deployment: &Deployment) -> Option<Trouble> {
        if *self.sight.borrow() != Visibility::Clear {
            return None;
        }
        let term = term(&kind.as_str().to_lowercase(), &key.name);
        trouble_of(deployment, &self.store.found(&key.namespace, &term))
    }

    /// Wakes the owner of a pod when a change of the pod changes what is told.
    fn listen(self: &Arc<Self>) {
        let pods = Arc::downgrade(self);
        self.store.on_change(move |change| {
            let (old, new) = (change.old.map(|e| &e.value), change.new.map(|e| &e.value));
            if let Some(sick) = new.or(old).filter(|_| old != new)
                && let Some(pods) = pods.upgrade()
            {
                pods.wake(change.key, sick);
            }
        });
    }

    /// Watches pods, for ever.
    pub async fn run(self: Arc<Self>, client: Client) {
        self.listen();
        let read = |text: &str| {
            let (key, entry) = read(text)?;
            let entry = entry.map(|mut entry| {
                if let Some(before) = self.store.get(&key).filter(|old| old.uid == entry.uid) {
                    entry.value = entry.value.after(&before.value);
                }
                entry
            });
            Ok((key, entry))
        };
        let on_news = |news: WatchNews<'_>| match news {
            WatchNews::ListBegins | WatchNews::Deleted(_) => {}
            WatchNews::ListComplete => {
                self.see(Visibility::Clear);
            }
            WatchNews::Failed(error) => {
                if error.is_forbidden() && self.see(Visibility::None) {
                    tracing::warn!(
                        "pods may not be seen, so statuses do not say why one does not run: see pods in deploy/rbac.yaml"
                    );
                }
            }
        };
        let api = Api::<Pod>::all(client);
        let options = WatchOptions {
            labels: Some(keys::OWNER_KIND),
            max_pause_while_forbidden: MAX_PAUSE_WHILE_FORBIDDEN,
            ..WatchOptions::default()
        };
        reflector::run_some(api, self.store.clone(), options, read, on_news).await;
    }

    /// Sets the visibility. Gives whether it changed: then all owners are woken, because what was told may be wrong.
    fn see(&self, now: Visibility) -> bool {
        let before = self.sight.send_replace(now);
        if before != now {
            for (key, entry) in self.store.all() {
                self.wake(&key, &entry.value);
            }
        }
        before != now
    }

    fn wake(&self, pod: &Key, sick: &FailingPod) {
        let kind =
            Kind::ALL.into_iter().find(|k| k.as_str().eq_ignore_ascii_case(sick.owner_kind()));
        if let Some(queue) = kind.and_then(|kind| self.queues.get()?.get(&kind)) {
            queue.add(Key::new(&pod.namespace, sick.owner_name()));
        }
    }
}

#[cfg(test)]
#[path = "tests/pods.rs"]
mod tests;
