//! Polls of remotes. They run beside the reconciles, so a slow remote delays no reconcile.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use super::{Driver, Reader, Settings, lock};
use crate::api::git_sync::GitSyncSpec;
use crate::cluster::store::Key;
use crate::definition::variables::Variables;
use crate::git::{Revision, Wake};
use crate::sync::commit::source_error::SourceError;
use crate::sync::credentials::Access;
use crate::sync::io::effect::PollRequest;
use crate::sync::io::poll::Answer;
use crate::sync::reasons::{SourceReason, Trigger};
use crate::sync::source::{Attempt, Source};
use crate::sync::variables;
use convoke_core::time::parse_duration;

/// Turns a panic into an error. The caller must not use what the work has left half done.
async fn unpanicked<T>(
    work: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or(Err(SourceError::Panicked))
}

/// How old an answer of the remote may be that it has given to another GitSync before this poll. Half of the time between two polls: then
/// the remote of all of them is asked as often as that of one.
fn max_age(spec: &GitSyncSpec, trigger: Trigger) -> Option<Duration> {
    let time = match trigger {
        Trigger::Interval | Trigger::SharedRef => &spec.interval,
        Trigger::Retry => &spec.retry_interval,
        // Somebody has pushed, or waits for what is true now.
        _ => return None,
    };
    parse_duration(time).map(|time| time / 2)
}

impl Driver {
    /// The reader of the repository of the GitSync with this UID.
    fn source(&self, key: &Key, uid: &str) -> Arc<tokio::sync::Mutex<Source>> {
        let mut readers = lock(&self.readers);
        if let Some(reader) = readers.get(key).filter(|reader| reader.uid == uid) {
            return reader.source.clone();
        }
        let Settings { repositories, dialler, budgets, .. } = &self.settings;
        let source = Source::new(uid.to_owned(), repositories.clone(), dialler.clone(), *budgets)
            .woken_by(self.wake(key))
            .limited_by(self.concurrency.clone())
            .in_place_of(self.settings.local.of(key));
        let source = Arc::new(tokio::sync::Mutex::new(source));
        let reader = Reader { uid: uid.to_owned(), source: source.clone(), poll: None };
        readers.insert(key.clone(), reader);
        source
    }

    /// Makes a GitSync poll when somebody else has seen that its ref has moved.
    fn wake(&self, key: &Key) -> Wake {
        let (moved, queue, key) = (self.moved_refs.clone(), self.queue.clone(), key.clone());
        Wake(Arc::new(move |after| {
            lock(&moved).insert(key.clone());
            queue.add_after(key.clone(), after);
        }))
    }

    /// Starts a poll. At its end the machine gets the answer, and a reconcile begins.
    pub(super) fn poll(self: &Arc<Self>, key: &Key, request: PollRequest) {
        let uid = request.sync.metadata.uid.clone().unwrap_or_default();
        let source = self.source(key, &uid);
        let (driver, mine, at) = (self.clone(), key.clone(), request.question.at);
        // In a box: the handle that aborts a task keeps the task's own memory until the next poll, 13 KiB for each GitSync.
        let task = tokio::spawn(Box::pin(async move {
            let found = unpanicked(Box::pin(driver.find(&mine, source, request)).map(Ok)).await;
            let machine = driver.machine(&mine.namespace);
            lock(&machine).polled(&mine.name, at, found);
            driver.queue.add(mine);
        }));
        if let Some(reader) = lock(&self.readers).get_mut(key)
            && let Some(old) = reader.poll.replace(task.abort_handle())
        {
            old.abort();
        }
    }

    async fn find(
        &self,
        key: &Key,
        source: Arc<tokio::sync::Mutex<Source>>,
        request: PollRequest,
    ) -> Answer {
        let PollRequest { sync, question, anew, needless, before, has_objects, applied, last } =
            request;
        let mut source = source.lock().await;
        if question.trigger == Trigger::Request {
            source.known_credentials.doubt();
            source.known_keys.doubt();
        }
        source.needless = needless;
        source.attempt = Attempt::default();
        source.max_age = max_age(&sync.spec, question.trigger);
        if anew {
            source.start_anew(self.settings.budgets);
        }
        // Neither waits for the other: the API server and the remote may be slow.
        // In a box: most GitSyncs have none.
        let webhook = Box::pin(self.webhooks.look(key, &sync.spec));
        let ((values, result), webhook) =
            futures::join!(self.refresh(key, &mut source, &sync.spec), webhook);
        let (mut changed, failure) = match result {
            Ok(changed) => (changed, None),
            Err(error) => (false, Some(error)),
        };
        if failure.is_none() {
            let before = (before, has_objects);
            match source.reach_back(&sync.spec, key, before, values.clone()).await {
                Ok(new) => changed |= new,
                Err(error) => {
                    tracing::warn!(object = %key, %error, "it is not known what was wanted before");
                }
            }
        }
        // Nothing new is known after a failure, but changes by hand are undone as the commit that was applied before says.
        if let Some(applied) = applied.filter(|_| failure.is_some())
            && let Err(error) = source.recall(&sync.spec, key, applied).await
        {
            tracing::warn!(object = %key, %error, "changes by hand are not undone for now");
        }
        let newest = source.loaded.as_ref().filter(|_| failure.is_none());
        let is_other = |last: &Revision| newest.is_some_and(|newest| newest.revision != *last);
        let recalled = match last.filter(is_other) {
            Some(last) => match source.before(&sync.spec, key, last, values).await {
                Ok(before) => before,
                Err(error) => {
                    tracing::warn!(object = %key, %error, "changes by hand are not undone for now");
                    None
                }
            },
            None => None,
        };
        let (loaded, failure) = (source.loaded.clone(), failure.map(Into::into));
        let Attempt { revision: attempted, asked, stages } = std::mem::take(&mut source.attempt);
        let (asked, age) = asked.unwrap_or((question.at, Duration::ZERO));
        let asked = asked.min(question.at);
        Answer {
            question,
            asked,
            age,
            attempted,
            stages,
            changed,
            failure,
            loaded,
            recalled,
            webhook,
        }
    }

    /// Reads the Secrets again because of what a server or a proxy has refused. The token of a GitHub App is asked for anew if it was refused.
    /// Returns whether these are other credentials.
    async fn has_new_credentials(
        &self,
        key: &Key,
        source: &mut Source,
        spec: &GitSyncSpec,
        reason: SourceReason,
    ) -> bool {
        if source.is_local() || (spec.secret_ref.is_none() && spec.proxy_secret_ref.is_none()) {
            return false;
        }
        let (known, dialler) = (&mut source.known_credentials, &self.settings.dialler);
        let operator = &self.settings.rules.operator;
        let before = known.credentials().clone();
        known.refused(reason);
        let permit = self.concurrency.poll(&key.namespace).await;
        let access = Access::of_sync(spec);
        let read = known.refresh(&self.client, &key.namespace, &access, operator, dialler).await;
        drop(permit);
        if let Err(error) = &read {
            tracing::warn!(object = %key, %error, "the Secrets cannot be read again");
        }
        read.is_ok() && *known.credentials() != before
    }

    /// Reads the credentials, the keys and the variables of a GitSync, and then its newest commit. Returns the variables, and whether
    /// something new was read.
    async fn refresh(
        &self,
        key: &Key,
        source: &mut Source,
        spec: &GitSyncSpec,
    ) -> (Option<Variables>, Result<bool, SourceError>) {
        let permit = self.concurrency.poll(&key.namespace).await;
        let credentials = if source.is_local() {
            Ok(())
        } else {
            let operator = &self.settings.rules.operator;
            let (client, namespace) = (&self.client, &key.namespace);
            let keys = source.known_keys.refresh(client, namespace, spec, operator).await;
            let known = &mut source.known_credentials;
            let dialler = &self.settings.dialler;
            let access = Access::of_sync(spec);
            known.refresh(client, namespace, &access, operator, dialler).await.and(keys)
        };
        source.ask_as_known();
        let values = match credentials {
            Ok(()) => variables::read(&self.client, &key.namespace, spec).await,
            Err(error) => Err(error),
        };
        drop(permit);
        let (values, result) = match values {
            Ok(values) => {
                let mut result = unpanicked(source.refresh(spec, key, values.clone())).await;
                if let Err(error) = &result
                    && error.reason().is_of_credentials()
                    && self.has_new_credentials(key, source, spec, error.reason()).await
                {
                    source.ask_as_known();
                    result = unpanicked(source.refresh(spec, key, values.clone())).await;
                }
                (values, result)
            }
            Err(error) => (None, Err(error)),
        };
        if let Err(error) = &result {
            if error.reason().is_of_credentials() {
                // They may be changed: the next poll reads them first.
                source.known_credentials.doubt();
            }
            if error.reason().is_of_signature() {
                source.known_keys.doubt();
            }
            tracing::warn!(object = %key, reason = error.reason().as_str(), %error, "cannot read the repository");
            if *error == SourceError::Panicked {
                source.start_anew(self.settings.budgets);
            }
        }
        (values, result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn g18_a_panic_is_an_error_and_says_nothing_of_what_was_read() {
        let failed = unpanicked::<()>(async { panic!("on purpose: a secret") }).await;
        assert_eq!(failed, Err(SourceError::Panicked));
        assert!(!SourceError::Panicked.to_string().contains("secret"));
    }
}
