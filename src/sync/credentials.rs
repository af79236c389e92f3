//! Reads the Secret of `spec.secretRef`: the credentials for the server of one GitSync.
//!
//! No Secret is listed or watched: the operator needs `get` on this one only. It is read again after some minutes, and at once when the
//! server refuses what it says.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_core::cluster::account::OperatorAccount;
use kube::{Client, ResourceExt};
use tokio::time::Instant;

use crate::api::git_sync::GitSyncSpec;
use crate::api::keys;
use crate::git::{Credentials, NoCredentials, are_for, origin};
use crate::sync::commit::source_error::SourceError;
use crate::sync::reasons::SourceReason;
use crate::sync::secrets::{Named, input};

/// How long credentials are used without a look at the Secret.
const MAX_AGE: Duration = Duration::from_secs(5 * 60);

/// The credentials of a GitSync, as they were read last.
#[derive(Default)]
pub struct Cached {
    /// For which Secret and URL, and when it was read.
    known: Option<((String, String), Instant)>,
    credentials: Credentials,
}

impl Cached {
    /// What was read last.
    pub const fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Looks at the Secret the next time.
    pub fn doubt(&mut self) {
        self.known = None;
    }

    /// Reads the Secret, unless it was read a moment ago. Without a Secret there are no credentials.
    ///
    /// # Errors
    /// [`SourceError::Input`] when the Secret does not exist, may not be read, is not for this server, or has no credentials. Then none are
    /// kept.
    pub async fn refresh(
        &mut self,
        client: &Client,
        namespace: &str,
        spec: &GitSyncSpec,
        operator: &OperatorAccount,
    ) -> Result<(), SourceError> {
        let Some(secret) = &spec.secret_ref else {
            *self = Self::default();
            return Ok(());
        };
        let wanted = (secret.name.clone(), spec.url.clone());
        let is_known =
            |(known, at): &((String, String), Instant)| *known == wanted && at.elapsed() < MAX_AGE;
        if self.known.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        *self = Self::default();
        let place = Place { namespace, name: &secret.name, url: &spec.url };
        self.credentials = read(client, place, operator).await?;
        self.known = Some((wanted, Instant::now()));
        Ok(())
    }
}

/// A Secret, and the repository that it is for.
#[derive(Clone, Copy)]
struct Place<'a> {
    namespace: &'a str,
    name: &'a str,
    url: &'a str,
}

async fn read(
    client: &Client,
    place: Place<'_>,
    operator: &OperatorAccount,
) -> Result<Credentials, SourceError> {
    let secret = place.secret().read(client, operator, || place.missing()).await?;
    let annotation = secret.annotations().get(keys::GIT_ORIGINS).cloned();
    let data = secret.data.unwrap_or_default().into_iter();
    place.credentials(annotation.as_deref(), data.map(|(key, value)| (key, value.0)).collect())
}

impl<'a> Place<'a> {
    /// The credentials in the data of the Secret, if its annotation allows them for this repository.
    fn credentials(
        self,
        annotation: Option<&str>,
        data: BTreeMap<String, Vec<u8>>,
    ) -> Result<Credentials, SourceError> {
        let Self { namespace, name, url } = self;
        let server = self.server();
        if !annotation.is_some_and(|annotation| are_for(annotation, url)) {
            let message = format!("the Secret {name} of spec.secretRef is not for {server}");
            let key = keys::GIT_ORIGINS;
            // What it is for already stays, and is not quoted.
            let hint = if annotation.is_none() {
                format!("kubectl -n {namespace} annotate secret {name} {key}={server}")
            } else {
                format!(
                    "if the server may get it, add {server} to its annotation {key}, after a comma"
                )
            };
            return Err(input(SourceReason::CredentialsNotAllowed, message, Some(hint)));
        }
        Credentials::of(&data)
            .map_err(|NoCredentials { problem, hint }| self.secret().invalid(&problem, hint))
    }

    /// The origin of the repository.
    fn server(self) -> String {
        origin(self.url).unwrap_or_else(|| "that URL".into())
    }

    fn missing(self) -> SourceError {
        let Self { namespace, name, .. } = self;
        let (key, server) = (keys::GIT_ORIGINS, self.server());
        self.secret()
            .missing(&format!("; kubectl -n {namespace} annotate secret {name} {key}={server}"))
    }

    /// The Secret alone.
    const fn secret(self) -> Named<'a> {
        Named { namespace: self.namespace, name: self.name, field: "spec.secretRef" }
    }
}

#[cfg(test)]
#[path = "tests/credentials.rs"]
mod tests;
