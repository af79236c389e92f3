//! The one watch of pods: which of them are in trouble. The others are not kept, and no event of theirs wakes anybody.
//!
//! Deployments say how many pods there are; why one does not run, only the pod says. Without the right to see pods
//! everything goes on, and statuses say what the Deployment says.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio::sync::watch;

use super::queue::Queue;
use crate::api::{Kind, keys};
use crate::cluster::pods::{Sick, Trouble, read, term, trouble_of};
use crate::cluster::reflector::{self, Heard, Manner};
use crate::cluster::store::{Key, Store};

/// Longest time that reconciles wait for the first list: else all that was told before would be taken back for a moment.
const SETTLE: Duration = Duration::from_secs(10);
/// Longest pause between two tries while the right is missing.
const FORBIDDEN: Duration = Duration::from_secs(60);

/// What the watch is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// Nothing was heard yet.
    Starting,
    /// The store holds what is.
    Clear,
    /// Pods may not be seen, or it takes too long: what the store holds is not told.
    None,
}

/// See the module.
pub struct Pods {
    store: Arc<Store<Sick>>,
    sight: watch::Sender<Sight>,
    queues: OnceLock<BTreeMap<Kind, Arc<Queue>>>,
}

impl Pods {
    /// Nothing is seen until [`Pods::run`] runs.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            store: Store::indexed("Pod", Sick::terms),
            sight: watch::Sender::new(Sight::Starting),
            queues: OnceLock::new(),
        })
    }

    /// Where objects are put whose pods come into trouble or out of it. Only the first call counts.
    pub fn notify(&self, queues: BTreeMap<Kind, Arc<Queue>>) {
        let _ = self.queues.set(queues);
    }

    /// Whether nothing is known yet, not even that pods may not be seen.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        *self.sight.borrow() == Sight::Starting
    }

    /// Waits for the first list, but not for long.
    pub async fn settled(&self) {
        if !self.is_pending() {
            return;
        }
        let mut sight = self.sight.subscribe();
        let heard = sight.wait_for(|sight| *sight != Sight::Starting);
        // The sender lives as long as self, so it is the time that ends this without an answer.
        if tokio::time::timeout(SETTLE, heard).await.is_err() {
            // Not what was heard in this moment.
            self.sight.send_if_modified(|sight| {
                let silent = *sight == Sight::Starting;
                if silent {
                    *sight = Sight::None;
                }
                silent
            });
        }
    }

    /// What is wrong with the newest pods of an object.
    #[must_use]
    pub fn trouble(&self, kind: Kind, key: &Key, deployment: &Deployment) -> Option<Trouble> {
        if *self.sight.borrow() != Sight::Clear {
            return None;
        }
        let term = term(&kind.as_str().to_lowercase(), &key.name);
        trouble_of(deployment, &self.store.found(&key.namespace, &term))
    }

    /// What changes of a pod wakes its owner only if it changes what is told.
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
        let heard = |heard: Heard<'_>| match heard {
            Heard::Lists | Heard::Ended(_) => {}
            Heard::Listed => {
                self.see(Sight::Clear);
            }
            Heard::Failed(error) => {
                if error.is_forbidden() && self.see(Sight::None) {
                    tracing::warn!(
                        "pods may not be seen, so statuses do not say why one does not run: see pods in deploy/rbac.yaml"
                    );
                }
            }
        };
        let api = Api::<Pod>::all(client);
        let manner =
            Manner { labels: Some(keys::OWNER_KIND), forbidden: FORBIDDEN, ..Manner::default() };
        reflector::run_some(api, self.store.clone(), manner, read, heard).await;
    }

    /// Whether that is news. Then what was told may be wrong.
    fn see(&self, now: Sight) -> bool {
        let before = self.sight.send_replace(now);
        if before != now {
            for (key, entry) in self.store.all() {
                self.wake(&key, &entry.value);
            }
        }
        before != now
    }

    fn wake(&self, pod: &Key, sick: &Sick) {
        let kind =
            Kind::ALL.into_iter().find(|k| k.as_str().eq_ignore_ascii_case(sick.owner_kind()));
        if let Some(queue) = kind.and_then(|kind| self.queues.get()?.get(&kind)) {
            queue.add(Key::new(&pod.namespace, sick.owner_name()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment() -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "agent-a", "namespace": "team", "generation": 1},
            "status": {"observedGeneration": 1},
        }))
        .expect("deployment")
    }

    /// A pod of agent `a` that waits for this reason, in this version.
    fn shown(pods: &Pods, version: u64, reason: &str) {
        let pod = json!({
            "metadata": {"name": "agent-a-1-x", "namespace": "team", "uid": "u", "resourceVersion": version.to_string(),
                "labels": {"convoke.dev/kind": "agent", "convoke.dev/name": "a"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": "agent-a-1", "controller": true}]},
            "status": {"containerStatuses": [{"name": "agent", "image": "i", "state": {"waiting": {"reason": reason}}}]},
        });
        match read(&pod.to_string()).expect("a pod") {
            (key, Some(entry)) => pods.store.applied(key, entry),
            (key, None) => pods.store.left(&key),
        }
    }

    #[tokio::test]
    async fn a8_only_what_changes_what_is_told_wakes_the_owner() {
        let (pods, queue) = (Pods::new(), Queue::new());
        pods.notify(BTreeMap::from([(Kind::Agent, queue.clone())]));
        pods.listen();
        let owner = Key::new("team", "a");
        let woken = async || {
            assert_eq!((queue.len(), queue.next().await), (1, owner.clone()));
            queue.done(&owner);
        };
        shown(&pods, 1, "ContainerCreating");
        assert!(pods.store.is_empty() && queue.is_empty(), "nothing is wrong with it");
        shown(&pods, 2, "ErrImagePull");
        woken().await;
        shown(&pods, 3, "ImagePullBackOff");
        assert!(queue.is_empty(), "the same trouble");

        // What the watch has shown is told while it can be relied on.
        let told = || pods.trouble(Kind::Agent, &owner, &deployment()).map(|t| t.reason);
        assert_eq!((pods.is_pending(), told()), (true, None));
        pods.see(Sight::Clear);
        woken().await;
        assert_eq!((pods.is_pending(), told()), (false, Some("ImagePullBackOff")));
        pods.see(Sight::None);
        woken().await;
        assert_eq!(told(), None, "pods may not be seen any more");
        pods.see(Sight::Clear);
        woken().await;
        shown(&pods, 4, "ContainerCreating");
        woken().await;
        assert_eq!((told(), pods.store.len()), (None, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a8_nobody_waits_long_for_a_watch_that_shows_nothing() {
        let pods = Pods::new();
        pods.settled().await;
        assert!(!pods.is_pending());
        pods.settled().await;
    }
}
