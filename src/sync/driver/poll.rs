//! Polls of remotes, which run beside the reconciles.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;

use super::{Driver, Reader, lock};
use crate::api::git_sync::Stages;
use crate::cluster::store::Key;
use crate::git::Revision;
use crate::sync::commit::source_error::SourceError;
use crate::sync::io::effect::PollRequest;
use crate::sync::io::poll::Answer;
use crate::sync::source::Source;
use crate::sync::variables;

/// A panic as an error. Whoever goes on must not believe what the work has left half done.
async fn unpanicked<T>(
    work: impl Future<Output = Result<T, SourceError>>,
) -> Result<T, SourceError> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or(Err(SourceError::Panicked))
}

impl Driver {
    /// What reads the repository of this very GitSync.
    fn source(&self, key: &Key, uid: &str) -> Arc<tokio::sync::Mutex<Source>> {
        let mut readers = lock(&self.readers);
        if let Some(reader) = readers.get(key).filter(|reader| reader.uid == uid) {
            return reader.source.clone();
        }
        let store = self.settings.data_dir.join(uid);
        let source = Source::new(store, self.settings.dialler.clone(), self.settings.budgets)
            .taking(self.slots.clone())
            .in_place_of(self.settings.local.of(key));
        let source = Arc::new(tokio::sync::Mutex::new(source));
        let reader = Reader { uid: uid.to_owned(), source: source.clone(), poll: None };
        readers.insert(key.clone(), reader);
        source
    }

    /// Begins a poll; the machine hears of its answer, and a reconcile begins then.
    pub(super) fn poll(self: &Arc<Self>, key: &Key, request: PollRequest) {
        let uid = request.sync.metadata.uid.clone().unwrap_or_default();
        let source = self.source(key, &uid);
        let (driver, mine, at) = (self.clone(), key.clone(), request.question.at);
        // In a box: what aborts a task keeps the task's own memory until the next poll, 13 KiB for each GitSync.
        let task = tokio::spawn(Box::pin(async move {
            let found = unpanicked(driver.find(&mine, source, request).map(Ok)).await;
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
        let budgets = self.settings.budgets;
        let mut source = source.lock().await;
        source.needless = needless;
        if anew {
            source.start_anew(budgets);
        }
        let (mut stages, mut attempted) = (Stages::default(), None);
        let slot = self.slots.ask(&key.namespace).await;
        let values = variables::read(&self.client, &key.namespace, &sync.spec).await;
        drop(slot);
        let known = values.as_ref().ok().cloned().flatten();
        let result = match values {
            Ok(values) => {
                let (stages, attempted) = (&mut stages, &mut attempted);
                unpanicked(source.refresh(&sync.spec, key, values, stages, attempted)).await
            }
            Err(error) => Err(error),
        };
        let (mut changed, failure) = match result {
            Ok(changed) => (changed, None),
            Err(error) => {
                tracing::warn!(object = %key, reason = error.reason().as_str(), %error, "cannot read the repository");
                if error == SourceError::Panicked {
                    source.start_anew(budgets);
                }
                (false, Some(error.into()))
            }
        };
        if failure.is_none() {
            let before = (before, has_objects);
            match source.reach_back(&sync.spec, key, before, known.clone()).await {
                Ok(new) => changed |= new,
                Err(error) => {
                    tracing::warn!(object = %key, %error, "it is not known what was wanted before");
                }
            }
        }
        if let Some(applied) = applied.filter(|_| failure.is_some()) {
            // Nothing new is known, but what was applied before is still to be kept so.
            if let Err(error) = source.recall(&sync.spec, key, applied).await {
                tracing::warn!(object = %key, %error, "changes by hand are not undone for now");
            }
        }
        let newest = source.loaded.as_ref().filter(|_| failure.is_none());
        let other = |last: &Revision| newest.is_some_and(|newest| newest.revision != *last);
        let recalled = match last.filter(other) {
            Some(last) => match source.before(&sync.spec, key, last, known).await {
                Ok(before) => before,
                Err(error) => {
                    tracing::warn!(object = %key, %error, "changes by hand are not undone for now");
                    None
                }
            },
            None => None,
        };
        let loaded = source.loaded.clone();
        Answer { question, attempted, stages, changed, failure, loaded, recalled }
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
