//! Reads the Secret of `spec.verify`: the public keys that may sign. It is read again after some minutes, on request, and after a
//! signature that does not count.

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke_core::cluster::account::OperatorAccount;
use kube::Client;

use crate::api::git_sync::GitSyncSpec;
use crate::git::{Keys, NoKeys};
use crate::sync::commit::source_error::SourceError;
use crate::sync::reasons::SourceReason;
use crate::sync::secrets::{Freshness, Named, VERIFICATION_KEYS};

/// The keys of a GitSync, as they were read last.
#[derive(Default)]
pub struct KnownKeys {
    /// Of which Secret, and whether it is read again.
    fresh: Freshness<String>,
    /// The Secret that was asked for last.
    name: Option<String>,
    keys: Option<Arc<Keys>>,
}

impl KnownKeys {
    /// Keys that were read already, for tests.
    #[must_use]
    pub fn of(keys: Arc<Keys>) -> Self {
        Self { fresh: Freshness::default(), name: None, keys: Some(keys) }
    }

    /// What was read last; `None` when nothing is verified, and while there are none.
    #[must_use]
    pub const fn keys(&self) -> Option<&Arc<Keys>> {
        self.keys.as_ref()
    }

    /// Looks at the Secret the next time.
    pub fn doubt(&mut self) {
        self.fresh = Freshness::default();
    }

    /// Reads the Secret, unless it was read a moment ago.
    ///
    /// # Errors
    /// [`SourceError::Input`] when the Secret does not exist, may not be read, or has no keys that can be used. Then none are kept. When
    /// the API server does not answer, those stay that were read from this Secret before.
    pub async fn refresh(
        &mut self,
        client: &Client,
        namespace: &str,
        spec: &GitSyncSpec,
        operator: &OperatorAccount,
    ) -> Result<(), SourceError> {
        let Some(verify) = &spec.verify else {
            *self = Self::default();
            return Ok(());
        };
        let name = &verify.secret_ref.name;
        if self.fresh.is_of(name) {
            return Ok(());
        }
        let secret = named(namespace, name);
        let found = secret.read(client, operator, || missing(secret)).await;
        let read = found.and_then(|found| {
            let data = found.data.unwrap_or_default().into_iter();
            let data: BTreeMap<_, _> = data.map(|(key, value)| (key, value.0)).collect();
            tokio::task::block_in_place(|| usable(secret, &data))
        });
        self.take_in(name, read)
    }

    /// Takes over what reading this Secret has brought.
    fn take_in(&mut self, name: &str, read: Result<Keys, SourceError>) -> Result<(), SourceError> {
        // Those of another Secret do not count.
        let known = self.keys.take().filter(|_| self.name.as_deref() == Some(name));
        self.fresh = Freshness::default();
        self.name = Some(name.to_owned());
        match read {
            Ok(keys) => {
                let same = known.filter(|known| **known == keys);
                self.keys = Some(same.unwrap_or_else(|| Arc::new(keys)));
                self.fresh = Freshness::now(name.to_owned());
                Ok(())
            }
            Err(error) => {
                // The API server does not answer for a moment: the Secret may be as it was.
                self.keys =
                    known.filter(|_| error.reason() == SourceReason::VerificationKeysUnreadable);
                Err(error)
            }
        }
    }
}

const fn named<'a>(namespace: &'a str, name: &'a str) -> Named<'a> {
    Named { namespace, name, field: "spec.verify", purpose: VERIFICATION_KEYS }
}

fn missing(secret: Named<'_>) -> SourceError {
    let more = "; it has the public keys that may sign: gpg --export --armor ADDRESS > team.asc";
    secret.missing("--from-file=team.asc", more)
}

fn usable(secret: Named<'_>, data: &BTreeMap<String, Vec<u8>>) -> Result<Keys, SourceError> {
    Keys::of(data)
        .map_err(|NoKeys { problem, hint }| secret.invalid(&problem, Some(hint.to_owned())))
}

#[cfg(test)]
#[path = "tests/verification.rs"]
mod tests;
