//! Tells forges what became of commits: `spec.commitStatus` of GitSyncs.
//!
//! What is told follows from the status of the GitSync alone. So nothing is remembered across restarts, and a status that cannot be told
//! changes nothing about the sync.

mod wanted;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::cluster::account::OperatorAccount;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, Resource};
use parking_lot::Mutex;
use reqwest::Url;

use self::wanted::wanted;
use crate::api::GitSync;
use crate::api::git_sync::{CommitStatusSpec, GitSyncSpec};
use crate::cluster::events::{EventType, Events};
use crate::cluster::live::Managed;
use crate::cluster::store::{Key, Store};
use crate::forge::{self, CommitStatus, Refused};
use crate::git::Credentials;
use crate::net::Dialler;
use crate::runtime::queue::Queue;
use crate::runtime::worker::{Next, Reconciler};
use crate::sync::commit::source_error::SourceError;
use crate::sync::credentials;
use crate::sync::reasons::SourceReason;
use crate::sync::secrets::{Bound, CREDENTIALS, Data, Guard, Named};

/// Statuses that are told at the same time.
pub const MAX_AT_ONCE: usize = 4;
/// How soon a status is told again when that may help without a change of the forge.
const RETRY_SOON: Duration = Duration::from_secs(30);
/// How soon a status is told again that the forge refused for a reason that stays.
const RETRY_REFUSED: Duration = Duration::from_secs(600);
/// What became of a commit longer ago than this when the operator started was told by the one before.
const MAX_AGE_AT_START: SignedDuration = SignedDuration::from_mins(5);
/// The reason of the event.
const REASON: &str = "CommitStatusFailed";
/// Who asks.
const USER_AGENT: &str = concat!("convoke/", env!("CARGO_PKG_VERSION"));
/// The key of the Secret.
const TOKEN: &str = "token";

/// Tells what became of commits.
pub struct CommitStatuses {
    client: Client,
    dialler: Dialler,
    events: Events,
    operator: OperatorAccount,
    syncs: Arc<Store<Managed<GitSync>>>,
    started: Timestamp,
    /// What was told last of each GitSync, by its UID.
    told: Mutex<HashMap<Key, Told>>,
}

#[derive(Default)]
struct Told {
    uid: String,
    status: Option<(CommitStatus, CommitStatusSpec)>,
    /// The last failure that was published as an event.
    failure: Option<String>,
}

/// Why nothing could be told.
enum Failure {
    Secret(SourceError),
    Forge(Refused),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (text, hint) = match self {
            Self::Secret(error) => (error.to_string(), error.hint()),
            Self::Forge(error) => (error.to_string(), error.hint().map(str::to_owned)),
        };
        match hint {
            Some(hint) => write!(f, "{text}; hint: {hint}"),
            None => f.write_str(&text),
        }
    }
}

impl CommitStatuses {
    /// Follows the GitSyncs of a store. Each change puts the key of a GitSync with `spec.commitStatus` on the queue.
    #[must_use]
    pub fn new(
        client: Client,
        dialler: Dialler,
        operator: OperatorAccount,
        syncs: Arc<Store<Managed<GitSync>>>,
        queue: &Arc<Queue>,
    ) -> Arc<Self> {
        let sink = queue.clone();
        syncs.on_change(move |change| {
            let object = change.new.and_then(|new| new.value.object());
            if object.is_none_or(|sync| sync.spec.commit_status.is_some()) {
                sink.add(change.key.clone());
            }
        });
        let events = Events::new(client.clone());
        let (started, told) = (Timestamp::now(), Mutex::default());
        Arc::new(Self { client, dialler, events, operator, syncs, started, told })
    }

    async fn tell(
        &self,
        key: &Key,
        spec: &GitSyncSpec,
        to: &CommitStatusSpec,
        status: &CommitStatus,
    ) -> Result<(), Failure> {
        let (url, name) = (spec.url.as_str(), &to.secret_ref.name);
        let refused = |_| Failure::Forge(Refused::NotARepository);
        let repository = Url::parse(url).map_err(refused)?;
        let secret = Named {
            namespace: &key.namespace,
            name,
            field: "spec.commitStatus",
            purpose: CREDENTIALS,
        };
        let (values, guard) = ("--from-literal=token=...", Guard::Origins);
        let place = Bound { secret, url, values, guard };
        let data = place.read(&self.client, &self.operator).await.map_err(Failure::Secret)?;
        let connection = self.connection(secret, &data, spec).await.map_err(Failure::Secret)?;
        let token = self.token(secret, &data, &connection).await.map_err(Failure::Secret)?;
        let options = connection.client_options(USER_AGENT);
        forge::post(&self.dialler, to.provider, &repository, &token, options, status)
            .await
            .map_err(Failure::Forge)
    }

    /// How the forge is reached: as the Secret says, and where it says nothing, as the repository is.
    async fn connection(
        &self,
        secret: Named<'_>,
        data: &Data,
        spec: &GitSyncSpec,
    ) -> Result<Credentials, SourceError> {
        let own = Credentials::of_connection(data)
            .map_err(|error| secret.invalid(&error.problem, error.hint))?;
        credentials::connecting(own, &self.client, secret.namespace, spec, &self.operator).await
    }

    /// The token in a Secret, or the one that a GitHub App gets.
    async fn token(
        &self,
        secret: Named<'_>,
        data: &Data,
        connection: &Credentials,
    ) -> Result<String, SourceError> {
        if let Some(token) = data.get(TOKEN) {
            let text = std::str::from_utf8(token).ok().map(str::trim);
            let text = text.filter(|text| !text.is_empty()).map(str::to_owned);
            return text.ok_or_else(|| secret.invalid("token is empty or no text", None));
        }
        // A GitHub App is one over https, whatever the URL of the repository is.
        let credentials = Credentials::of(data, "https://")
            .map_err(|error| secret.invalid(&error.problem, error.hint))?
            .connecting_as(connection);
        let Some(app) = credentials.app() else {
            return Err(secret.invalid("it has no token", Some("its key is token".into())));
        };
        let token = app.token(&self.dialler, &credentials).await;
        let token = token
            .map_err(|error| secret.invalid(&error.to_string(), error.hint().map(str::to_owned)))?;
        Ok(token.into_text())
    }

    /// Publishes a failure once, and says when to try again.
    async fn failed(&self, key: &Key, about: &ObjectReference, failure: &Failure) -> Next {
        let text = failure.to_string();
        let is_new = {
            let mut told = self.told.lock();
            let told = told.entry(key.clone()).or_default();
            let is_new = told.failure.as_ref() != Some(&text);
            told.failure = Some(text.clone());
            is_new
        };
        // A pause is what forges want now and then, and nothing that people could mend.
        if is_new && !matches!(failure, Failure::Forge(Refused::Pause { .. })) {
            let note = format!("cannot tell the forge what became of the commit: {text}");
            tracing::warn!(object = %key, note);
            self.events.publish(about, EventType::Warning, REASON, &note).await;
        }
        match failure {
            Failure::Forge(Refused::Pause { after, .. }) => Next::After(*after),
            Failure::Forge(error) if error.may_pass() => Next::After(RETRY_SOON),
            Failure::Secret(error) if is_mended_here(error) => Next::After(RETRY_SOON),
            _ => Next::After(RETRY_REFUSED),
        }
    }
}

/// Whether somebody is likely to mend it right now, as the event says, and a look costs no more than the read of a few Secrets.
fn is_mended_here(error: &SourceError) -> bool {
    matches!(
        error.reason(),
        SourceReason::CredentialsMissing
            | SourceReason::CredentialsForbidden
            | SourceReason::CredentialsNotAllowed
            | SourceReason::CredentialsUnreadable
            | SourceReason::CredentialsInvalid
    )
}

impl Reconciler for CommitStatuses {
    type Error = std::convert::Infallible;
    const KIND: &'static str = "commit status";

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, Self::Error> {
        let entry = self.syncs.get(&key);
        let Some((sync, uid)) =
            entry.and_then(|entry| Some((entry.value.object()?, entry.uid.clone())))
        else {
            self.told.lock().remove(&key);
            return Ok(Next::Forget);
        };
        let Some(spec) = sync.spec.commit_status.clone() else {
            self.told.lock().remove(&key);
            return Ok(Next::Forget);
        };
        let Some((status, since)) = wanted(&sync) else { return Ok(Next::Settled) };
        {
            let mut all = self.told.lock();
            let told = all.entry(key.clone()).or_default();
            if told.uid != uid {
                *told = Told { uid, ..Told::default() };
                if since < self.started.saturating_sub(MAX_AGE_AT_START).unwrap_or(Timestamp::MIN) {
                    told.status = Some((status.clone(), spec.clone()));
                }
            }
            if told.status.as_ref().is_some_and(|known| *known == (status.clone(), spec.clone())) {
                return Ok(Next::Settled);
            }
        }
        if let Err(failure) = self.tell(&key, &sync.spec, &spec, &status).await {
            return Ok(self.failed(&key, &sync.object_ref(&()), &failure).await);
        }
        tracing::info!(object = %key, commit = status.commit, state = ?status.state, "the forge was told");
        let mut told = self.told.lock();
        let told = told.entry(key).or_default();
        (told.status, told.failure) = (Some((status, spec)), None);
        Ok(Next::Settled)
    }
}
