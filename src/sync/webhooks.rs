//! The webhooks of GitSyncs: which path is whose, the tokens, and the polls that deliveries start.
//!
//! A token is read at a poll, unless it was read minutes ago. Outside of polls it is read when a delivery gives a reason to: its signature
//! did not match, or the token is old. The delivery never waits for that. If the token turns out to be another one, the remote is polled,
//! so a push that came before the new token was known is not lost.
//!
//! A delivery for a ref that its GitSync does not follow polls the remote if a GitSync follows it that shares the repository: same URL, same
//! credentials. Nobody else may make a difference: whoever can see that a remote is polled would learn what others follow.
//!
//! A replica that does not lead polls nothing. It sets the annotation `convoke.dev/requestedAt` instead, which the leader sees.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use convoke_core::cluster::account::OperatorAccount;
use futures::StreamExt;
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api::GitSync;
use crate::api::git_sync::GitSyncSpec;
use crate::api::keys;
use crate::api::webhook::path;
use crate::cluster::client::call;
use crate::cluster::live::Managed;
use crate::cluster::store::{Change, Entry, Key, Store};
use crate::git::Repositories;
use crate::http::webhook::delivery::{Follows, NoToken, Token};
use crate::http::webhook::hooks::{Hook, Hooks, Signal};
use crate::runtime::queue::Queue;
use crate::sync::commit::source_error::SourceError;
use crate::sync::io::poll::{SourceFailure, WebhookState};
use crate::sync::poll::pace::Pace;
use crate::sync::reasons::SourceReason;
use crate::sync::secrets::{CREDENTIALS, Named};

/// The field that names the Secret, for messages.
const FIELD: &str = "spec.webhook";
/// The key of the Secret.
const TOKEN: &str = "token";
/// The arguments of the command that makes the Secret.
const NEW_TOKEN: &str = "--from-literal=token=...";
/// How long a token is used without a look at the Secret.
const MAX_AGE: Duration = Duration::from_secs(5 * 60);
/// The shortest time between two looks, when deliveries give a reason.
const DOUBT_GAP: Duration = Duration::from_secs(10);
/// How soon a Secret that could not be used is looked at again.
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// Secrets that are read at the same time, outside of polls.
const READS_AT_ONCE: usize = 8;

/// How often a replica that does not lead tries to tell the leader of a push, and how long after a failure.
const TRIES_TO_TELL: u32 = 5;
const PAUSE_BETWEEN_TRIES: Duration = Duration::from_secs(2);

/// Whether this replica leads now, and so is the one that polls.
pub type Leads = Arc<dyn Fn() -> bool + Send + Sync>;

/// The last look at the Secret of a webhook.
struct Look {
    at: Instant,
    state: WebhookState,
}

/// What is known of the webhook of a GitSync.
struct Known {
    uid: String,
    path: String,
    secret: String,
    suspended: bool,
    look: Option<Look>,
    /// Since when the webhook is known.
    since: Instant,
    /// Whether a delivery gives a reason to look again.
    doubted: bool,
}

impl Known {
    /// When the Secret is to be looked at outside of a poll; `None`: not before something happens.
    fn due(&self) -> Option<Instant> {
        if self.suspended {
            return None;
        }
        // The first look is that of the first poll, as a rule.
        let Some(look) = &self.look else { return Some(self.since + DOUBT_GAP) };
        if self.doubted {
            Some(look.at + DOUBT_GAP)
        } else if look.state == WebhookState::Ready {
            None
        } else {
            Some(look.at + RETRY_AFTER)
        }
    }
}

/// See the module.
pub struct Webhooks {
    client: Client,
    operator: OperatorAccount,
    queue: Arc<Queue>,
    leads: Leads,
    /// The server's part; `None` when there is no server.
    hooks: OnceLock<Arc<Hooks>>,
    known: Mutex<HashMap<Key, Known>>,
    paces: Mutex<HashMap<Key, Pace>>,
    repositories: Repositories,
    /// Some Secret may be due.
    changed: Notify,
}

/// What a [`Webhooks`] is made of.
pub struct Parts {
    /// Reads Secrets, and sets annotations while this replica does not lead.
    pub client: Client,
    /// The operator's own account, for commands that give it rights.
    pub operator: OperatorAccount,
    /// What GitSyncs share.
    pub repositories: Repositories,
    /// Gets the key of each GitSync that is woken.
    pub queue: Arc<Queue>,
    /// Whether this replica leads.
    pub leads: Leads,
    /// Whether the operator listens for webhooks.
    pub served: bool,
}

impl Webhooks {
    /// The webhooks of the GitSyncs of a store.
    #[must_use]
    pub fn new(parts: Parts, syncs: &Store<Managed<GitSync>>) -> Arc<Self> {
        let Parts { client, operator, repositories, queue, leads, served } = parts;
        let webhooks = Arc::new(Self {
            client,
            operator,
            queue,
            leads,
            hooks: OnceLock::new(),
            known: Mutex::default(),
            paces: Mutex::default(),
            repositories,
            changed: Notify::new(),
        });
        if served {
            let listener: Weak<Self> = Arc::downgrade(&webhooks);
            let hooks = Hooks::new(Arc::new(move |key, signal| {
                if let Some(webhooks) = listener.upgrade() {
                    webhooks.heard(key, signal);
                }
            }));
            let _ = webhooks.hooks.set(Arc::new(hooks));
            let follower = webhooks.clone();
            syncs.on_change(move |change| follower.followed(change));
        }
        webhooks
    }

    /// The server's part; `None` when there is no server.
    #[must_use]
    pub fn hooks(&self) -> Option<&Arc<Hooks>> {
        self.hooks.get()
    }

    /// A GitSync has changed: so may its webhook.
    fn followed(&self, change: &Change<'_, Managed<GitSync>>) {
        if let (Some(old), Some(new)) = (change.old, change.new)
            && old.uid == new.uid
            && old.value.facts.same_input(&new.value.facts)
        {
            return;
        }
        if let Some(old) = change.old.filter(|old| change.new.is_none_or(|new| new.uid != old.uid))
        {
            self.forget(change.key, &old.uid);
        }
        if let Some(new) = change.new {
            self.follow(change.key, new);
        }
    }

    fn forget(&self, key: &Key, uid: &str) {
        self.hooks().iter().for_each(|hooks| hooks.remove(&path(uid)));
        self.known.lock().remove(key);
        self.paces.lock().remove(key);
    }

    fn follow(&self, key: &Key, entry: &Entry<Managed<GitSync>>) {
        let Some(hooks) = self.hooks() else { return };
        let sync = entry.value.object().filter(|_| !entry.value.facts.deleting);
        let spec = sync.as_ref().map(|sync| &sync.spec);
        let Some((spec, webhook)) = spec.and_then(|spec| Some((spec, spec.webhook.as_ref()?)))
        else {
            return self.forget(key, &entry.uid);
        };
        let (path, secret, suspended) =
            (path(&entry.uid), webhook.secret_ref.name.clone(), spec.suspend);
        let hook = Hook {
            key: key.clone(),
            provider: webhook.provider,
            follows: Follows::of(spec.reference.as_ref()),
            suspended,
        };
        let mut all = self.known.lock();
        let before = all.remove(key).filter(|before| before.path == path);
        hooks.put(&path, hook);
        if before.as_ref().is_some_and(|before| before.secret != secret) {
            hooks.set_token(&path, None);
        }
        let before = before.filter(|before| before.secret == secret);
        let look = before.and_then(|before| before.look);
        let (since, doubted) = (Instant::now(), false);
        let uid = entry.uid.clone();
        all.insert(key.clone(), Known { uid, path, secret, suspended, look, since, doubted });
    }

    /// A delivery has come. This waits for nothing.
    fn heard(self: &Arc<Self>, key: &Key, signal: &Signal) {
        match signal {
            Signal::Wake => self.wake(key),
            // A replica that does not lead has no repositories.
            Signal::Elsewhere(pushed) if self.is_followed_beside(key, pushed) => self.wake(key),
            Signal::Elsewhere(_) | Signal::Doubt | Signal::Heard => {}
        }
        let mut all = self.known.lock();
        let Some(known) = all.get_mut(key) else { return };
        let is_old = known.look.as_ref().is_none_or(|look| look.at.elapsed() >= MAX_AGE);
        if (*signal == Signal::Doubt || is_old) && !std::mem::replace(&mut known.doubted, true) {
            self.changed.notify_one();
        }
    }

    /// Whether a push to a ref matters to others with whom a GitSync shares its repository.
    fn is_followed_beside(&self, key: &Key, pushed: &str) -> bool {
        let uid = self.known.lock().get(key).map(|known| known.uid.clone());
        uid.is_some_and(|uid| self.repositories.others_follow(&uid, pushed))
    }

    /// Polls the remote of a GitSync as soon as its pace allows.
    fn wake(self: &Arc<Self>, key: &Key) {
        // The others share the poll of the first.
        if !self.paces.lock().entry(key.clone()).or_default().delivered() {
            return;
        }
        if (self.leads)() {
            self.queue.add(key.clone());
        } else {
            let (webhooks, key) = (self.clone(), key.clone());
            tokio::spawn(async move { webhooks.tell_leader(&key).await });
        }
    }

    fn pace(&self, key: &Key) -> Option<Duration> {
        self.paces.lock().get_mut(key)?.take(Instant::now().into_std())
    }

    /// Whether the remote of a GitSync is to be polled now because of what was delivered. If it has to wait, it is put on the queue.
    pub fn take(&self, key: &Key) -> bool {
        match self.pace(key) {
            None => false,
            Some(Duration::ZERO) => true,
            Some(wait) => {
                self.queue.add_after(key.clone(), wait);
                false
            }
        }
    }

    /// Asks the leader for a sync, as soon as the pace of the GitSync allows.
    async fn tell_leader(&self, key: &Key) {
        while let Some(wait) = self.pace(key).filter(|wait| !wait.is_zero()) {
            tokio::time::sleep(wait).await;
        }
        let syncs = Api::<GitSync>::namespaced(self.client.clone(), &key.namespace);
        let now = Timestamp::now().to_string();
        let patch = Patch::Merge(json!({"metadata": {"annotations": {keys::REQUESTED_AT: now}}}));
        for _ in 0..TRIES_TO_TELL {
            match call(syncs.patch_metadata(&key.name, &PatchParams::default(), &patch)).await {
                Ok(_) => return,
                Err(error) if error.is_gone() => return,
                Err(error) => {
                    tracing::warn!(object = %key, %error, "cannot tell the leader of a push");
                }
            }
            tokio::time::sleep(PAUSE_BETWEEN_TRIES).await;
        }
    }

    /// Whether deliveries of a GitSync can be checked; `None` without a webhook. The Secret is read unless it was read minutes ago.
    pub async fn look(&self, key: &Key, spec: &GitSyncSpec) -> Option<WebhookState> {
        let webhook = spec.webhook.as_ref()?;
        if self.hooks().is_none() {
            return Some(WebhookState::NotServed);
        }
        let name = &webhook.secret_ref.name;
        let fresh = self.known.lock().get(key).and_then(|known| {
            let look = known.look.as_ref().filter(|_| known.secret == *name)?;
            let is_ready = look.state == WebhookState::Ready;
            let max_age = if known.doubted { DOUBT_GAP } else { MAX_AGE };
            (is_ready && look.at.elapsed() < max_age).then(|| look.state.clone())
        });
        if fresh.is_some() {
            return fresh;
        }
        Some(self.read(key, name).await.0)
    }

    /// Reads the Secret, and takes over its token. Returns the state, and whether there is a reason to poll: the state or the
    /// token is another one than before.
    async fn read(&self, key: &Key, name: &str) -> (WebhookState, bool) {
        // A doubt that arises while the Secret is read needs another look: this one may be too early.
        let doubted =
            self.known.lock().get_mut(key).is_some_and(|known| std::mem::take(&mut known.doubted));
        let place = Named { namespace: &key.namespace, name, field: FIELD, purpose: CREDENTIALS };
        let found = place.read(&self.client, &self.operator, || place.missing(NEW_TOKEN, "")).await;
        let found = found.and_then(|mut secret| {
            let value = secret.data.as_mut().and_then(|data| data.remove(TOKEN));
            token(place, value.as_ref().map(|value| value.0.as_slice()))
        });
        let (state, token) = match found {
            Ok(token) => (WebhookState::Ready, Some(token)),
            Err(error) => (WebhookState::Unreadable(SourceFailure::from(error)), None),
        };
        let passes = matches!(&state, WebhookState::Unreadable(failure) if failure.reason == SourceReason::CredentialsUnreadable);
        let mut all = self.known.lock();
        // The spec may name another Secret by now.
        let Some(known) = all.get_mut(key).filter(|known| known.secret == name) else {
            return (state, false);
        };
        // The token stays while the API server does not answer.
        let other =
            !passes && self.hooks().is_some_and(|hooks| hooks.set_token(&known.path, token));
        let before = known.look.replace(Look { at: Instant::now(), state: state.clone() });
        self.changed.notify_one();
        // The first look is no news, unless a delivery was refused before it.
        let news = match before {
            Some(before) => other || before.state != state,
            None => other && doubted,
        };
        (state, news)
    }

    /// Reads the Secrets that are due outside of polls, for ever.
    pub async fn follow_secrets(self: Arc<Self>) {
        loop {
            let (now, mut next) = (Instant::now(), None);
            let mut due = Vec::new();
            for (key, known) in &*self.known.lock() {
                match known.due() {
                    Some(at) if at <= now => due.push((key.clone(), known.secret.clone())),
                    Some(at) => next = Some(next.map_or(at, |next: Instant| next.min(at))),
                    None => {}
                }
            }
            if due.is_empty() {
                let far = now + MAX_AGE;
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = tokio::time::sleep_until(next.unwrap_or(far)) => {}
                }
                continue;
            }
            let this = &self;
            let reads = due.into_iter().map(|(key, name)| async move {
                if this.read(&key, &name).await.1 {
                    // The status is told by a poll, and a delivery may have come with the new token.
                    this.wake(&key);
                }
            });
            futures::stream::iter(reads).for_each_concurrent(READS_AT_ONCE, |read| read).await;
        }
    }
}

/// The token of a Secret.
fn token(place: Named<'_>, value: Option<&[u8]>) -> Result<Token, SourceError> {
    let Some(value) = value else {
        let hint = format!("its key is {TOKEN}");
        return Err(place.invalid(&format!("it has no {TOKEN}"), Some(hint)));
    };
    Token::new(value)
        .map_err(|NoToken { problem, hint }| place.invalid(problem, hint.map(str::to_owned)))
}

#[cfg(test)]
#[path = "tests/webhooks.rs"]
mod tests;
