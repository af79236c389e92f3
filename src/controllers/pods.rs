//! The one watch of pods. Pods in trouble and ready pods are kept. Changes of trouble wake controllers, and so does a pod that
//! becomes ready: what it has read is looked at again. That a pod becomes ready, or is not any more, is told to whoever asks pods
//! something.
//!
//! A Deployment says how many pods there are. Only the pod says why it does not run, and where it can be asked. Without the right
//! to see pods everything goes on: statuses say what the Deployment says, and no pod is asked.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use reqwest::{Request, Response};
use tokio::sync::watch;

use crate::api::{Kind, keys};
use crate::cluster::children::ChildStores;
use crate::cluster::client::{CallError, call};
use crate::cluster::pods::{Trouble, read, term, trouble_of};
use crate::cluster::ready_pods::{ReadyPod, SeenPod, chosen};
use crate::cluster::reflector::{self, WatchNews, WatchOptions};
use crate::cluster::store::{Change, Key, Store};
use crate::net::{NetError, PodClient};
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
    /// The first list takes too long. What the store holds is not told.
    Late,
    /// Pods may not be seen. What the store holds is not told.
    Forbidden,
}

/// A pod that belongs to an object of ours. From the pod over its ReplicaSet and its Deployment to the object, each names the next
/// one by UID as its controller. Only [`Pods::owned`] makes one, and only [`Pods::ask`] uses its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedPod {
    uid: String,
    address: SocketAddr,
    set: String,
    set_uid: String,
    deployment_uid: String,
}

impl OwnedPod {
    /// UID of the pod.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The same pod at another port.
    #[must_use]
    pub fn at_port(&self, port: u16) -> Self {
        Self { address: SocketAddr::new(self.address.ip(), port), ..self.clone() }
    }

    /// Which revision of its Deployment it is of: the last part of the name of its ReplicaSet.
    #[must_use]
    pub fn revision(&self) -> &str {
        self.set.rsplit('-').next().unwrap_or_default()
    }
}

/// The object whose pod is looked for, and where that listens.
#[derive(Debug, Clone, Copy)]
pub struct PodOwner<'a> {
    /// Kind of the object.
    pub kind: Kind,
    /// Its namespace and name.
    pub key: &'a Key,
    /// Its UID.
    pub uid: &'a str,
    /// The name of its Deployment.
    pub deployment: &'a str,
    /// The port that its pods listen on.
    pub port: u16,
}

/// What is told of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodNews<'a> {
    /// It has become ready.
    Ready,
    /// It may be seen, or not any more. Nothing has happened to it.
    Seen,
    /// The pod with this UID is not ready any more.
    Lost(&'a str),
}

/// Is told of pods, with the kind and the key of the object that each claims to belong to.
type ReadyListener = Box<dyn Fn(Kind, &Key, PodNews<'_>) + Send + Sync>;

/// The pods that are kept.
pub struct Pods {
    store: Arc<Store<SeenPod>>,
    sight: watch::Sender<Visibility>,
    queues: OnceLock<BTreeMap<Kind, Arc<Queue>>>,
    /// Listens to ready pods.
    ready: OnceLock<ReadyListener>,
    /// Asks pods. `None` when there is no TLS library, which nothing else does without.
    asks: Option<PodClient>,
}

impl Pods {
    /// A store that is empty until [`Pods::run`] runs.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            store: Store::indexed("Pod", SeenPod::terms),
            sight: watch::Sender::new(Visibility::Starting),
            queues: OnceLock::new(),
            ready: OnceLock::new(),
            asks: PodClient::new(concat!("convoke/", env!("CARGO_PKG_VERSION"))).ok(),
        })
    }

    /// Sets the queues of the objects whose pods come into trouble or out of it. Only the first call counts.
    pub fn notify(&self, queues: BTreeMap<Kind, Arc<Queue>>) {
        let _ = self.queues.set(queues);
    }

    /// Sets who is told that a pod is ready, or is not ready any more. Only the first call counts.
    pub fn on_ready(&self, listener: impl Fn(Kind, &Key, PodNews<'_>) + Send + Sync + 'static) {
        let _ = self.ready.set(Box::new(listener));
    }

    /// Whether it is not known yet what pods there are, nor that they may not be seen.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        *self.sight.borrow() == Visibility::Starting
    }

    /// Whether the operator lacks the right to see pods.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        *self.sight.borrow() == Visibility::Forbidden
    }

    /// Takes the right to see pods away.
    #[cfg(test)]
    pub fn forbid(&self) {
        self.see(Visibility::Forbidden);
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
                    *sight = Visibility::Late;
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

    /// `resourceVersion` of the pod of an object that became ready, or changed since, last; 0 while none is ready.
    #[must_use]
    pub fn newest_ready(&self, kind: Kind, key: &Key) -> u64 {
        let term = term(&kind.as_str().to_lowercase(), &key.name);
        let seen = self.store.found(&key.namespace, &term);
        let ready = seen.iter().filter(|(_, entry)| matches!(entry.value, SeenPod::Ready(_)));
        ready.map(|(_, entry)| entry.version).max().unwrap_or(0)
    }

    /// A ready pod of the newest revision of an object, the same as `before` if that is still one. `None` while there is none, or
    /// while pods may not be seen.
    ///
    /// # Errors
    /// When the ReplicaSet cannot be read.
    pub async fn owned(
        &self,
        client: &Client,
        children: &ChildStores,
        owner: PodOwner<'_>,
        before: Option<&OwnedPod>,
    ) -> Result<Option<OwnedPod>, CallError> {
        let Some(claims) = self.claims(children, owner, before, None) else { return Ok(None) };
        // What was proven of a ReplicaSet stays: the UID of its controller never changes to that of another Deployment.
        let is_proven = before.is_some_and(|before| {
            before.set_uid == claims.set_uid && before.deployment_uid == claims.deployment_uid
        });
        if is_proven {
            return Ok(Some(claims));
        }
        let sets = Api::<ReplicaSet>::namespaced(client.clone(), &owner.key.namespace);
        let set = match call(sets.get_metadata(&claims.set)).await {
            Ok(set) => set.metadata,
            Err(error) if error.is_gone() => return Ok(None),
            Err(error) => return Err(error),
        };
        // Another pod may only have named a ReplicaSet of that name.
        let set_uid = set.uid.as_deref().unwrap_or_default();
        let claims = self.claims(children, owner, before, Some(set_uid));
        Ok(claims.filter(|claims| proves(&set, claims)))
    }

    /// UID of the pod that [`Pods::owned`] would look at, without a request.
    #[must_use]
    pub fn candidate(
        &self,
        children: &ChildStores,
        owner: PodOwner<'_>,
        before: Option<&OwnedPod>,
    ) -> Option<String> {
        Some(self.claims(children, owner, before, None)?.uid)
    }

    /// The pod that is to be asked, as far as the stores show it: what its ReplicaSet says is not proven yet. With `set_uid`, only a
    /// pod of that ReplicaSet.
    fn claims(
        &self,
        children: &ChildStores,
        owner: PodOwner<'_>,
        before: Option<&OwnedPod>,
        set_uid: Option<&str>,
    ) -> Option<OwnedPod> {
        if *self.sight.borrow() != Visibility::Clear {
            return None;
        }
        let PodOwner { kind, key, uid, deployment, port } = owner;
        let live = children.deployments.get(&Key::new(&key.namespace, deployment))?;
        if live.value.owner_uid() != Some(uid) {
            return None;
        }
        let term = term(&kind.as_str().to_lowercase(), &key.name);
        let seen = self.store.found(&key.namespace, &term);
        let before = before.map(OwnedPod::uid);
        let (_, pod_uid, pod) = chosen(&live.value.object()?, &seen, before, set_uid)?;
        Some(OwnedPod {
            uid: pod_uid,
            address: SocketAddr::new(pod.ip, port),
            set: pod.set().to_owned(),
            set_uid: pod.set_uid().to_owned(),
            deployment_uid: live.uid.clone(),
        })
    }

    /// Sends a request to a pod. The URL of the request says the path and what the pod is called; it is not where the request goes.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub async fn ask(&self, pod: &OwnedPod, request: Request) -> Result<Response, NetError> {
        match &self.asks {
            Some(client) => client.execute(pod.address, request).await,
            None => Err(NetError::Failed { detail: "there is no TLS library".into() }),
        }
    }

    /// Wakes the owner of a pod when a change of the pod changes what is told, and tells of ready pods.
    fn listen(self: &Arc<Self>) {
        let pods = Arc::downgrade(self);
        self.store.on_change(move |change| {
            if let Some(pods) = pods.upgrade() {
                pods.changed(change);
            }
        });
    }

    fn changed(&self, change: &Change<'_, SeenPod>) {
        let (old, new) = (change.old.map(|e| &e.value), change.new.map(|e| &e.value));
        let (was_sick, is_sick) = (old.and_then(SeenPod::failing), new.and_then(SeenPod::failing));
        if was_sick != is_sick
            && let Some(pod) = new.or(old)
        {
            self.wake(change.key, pod);
        }
        let ready = |pod: Option<&SeenPod>| match pod {
            Some(SeenPod::Ready(pod)) => Some(pod.clone()),
            Some(SeenPod::Failing(_)) | None => None,
        };
        let (was_ready, is_ready): (Option<ReadyPod>, _) = (ready(old), ready(new));
        if was_ready == is_ready {
            return;
        }
        let lost = change.old.filter(|_| is_ready.is_none());
        let news = match lost {
            Some(entry) => PodNews::Lost(&entry.uid),
            // What the first list has was ready before.
            None if self.is_pending() => PodNews::Seen,
            None => PodNews::Ready,
        };
        if let (PodNews::Ready, Some(pod)) = (&news, new) {
            self.wake(change.key, pod);
        }
        if let (Some(pod), Some(tell)) = (new.or(old), self.ready.get())
            && let Some((kind, key)) = owner_of(change.key, pod)
        {
            tell(kind, &key, news);
        }
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
                if error.is_forbidden() && self.see(Visibility::Forbidden) {
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
                match &entry.value {
                    pod @ SeenPod::Failing(_) => self.wake(&key, pod),
                    pod @ SeenPod::Ready(_) => {
                        if let (Some(tell), Some((kind, owner))) =
                            (self.ready.get(), owner_of(&key, pod))
                        {
                            tell(kind, &owner, PodNews::Seen);
                        }
                    }
                }
            }
        }
        before != now
    }

    /// Puts the owner of a pod on the queue of its controller.
    fn wake(&self, key: &Key, pod: &SeenPod) {
        if let Some((kind, owner)) = owner_of(key, pod)
            && let Some(queue) = self.queues.get().and_then(|queues| queues.get(&kind))
        {
            queue.add(owner);
        }
    }
}

/// The object that a pod claims to belong to.
fn owner_of(key: &Key, pod: &SeenPod) -> Option<(Kind, Key)> {
    let (kind, name) = pod.owner();
    let kind = Kind::ALL.into_iter().find(|k| k.as_str().eq_ignore_ascii_case(kind))?;
    Some((kind, Key::new(&key.namespace, name)))
}

/// Whether a ReplicaSet is the one that a pod names, and its controller is the Deployment.
fn proves(set: &ObjectMeta, claims: &OwnedPod) -> bool {
    let mut owners = set.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    set.uid.as_deref() == Some(&claims.set_uid)
        && !claims.set_uid.is_empty()
        && controller.is_some_and(|o| o.kind == "Deployment" && o.uid == claims.deployment_uid)
}

#[cfg(test)]
#[path = "tests/pods.rs"]
mod tests;
