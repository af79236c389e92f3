//! Asks the server for the ref, and reads the commit, with the operator's own code.

use std::time::Duration;

use crate::api::Kind;
use crate::api::git_sync::{GitRef, Problem, Severity};
use crate::cli::{CLUSTER, Failure, USAGE, count};
use crate::definition::ignore::Patterns;
use crate::definition::{Context, Limits, Loader, diagnostic};
use crate::git::{self, Credentials, GitError, Remote, RemoteOptions, Repositories, Revision};
use crate::net::Dialler;
use convoke_core::sync::commit::source_error::SourceError;

/// Errors of the commit that are shown.
const SHOWN: usize = 5;

/// What is tried.
pub struct Trial<'a> {
    /// The URL of the repository.
    pub url: &'a str,
    /// What is followed.
    pub reference: &'a GitRef,
    /// The folder.
    pub path: &'a str,
    /// The namespace of the objects.
    pub namespace: &'a str,
    /// How long one request may take.
    pub timeout: Duration,
    /// Makes the connections.
    pub dialler: Dialler,
}

/// What was found in the newest commit.
pub struct Found {
    /// Lines for people.
    pub text: String,
    /// Whether a ModelAPI has the mode Proxy.
    pub has_model_proxy: bool,
}

impl Trial<'_> {
    /// Reads the newest commit. Returns what was found. Offline, the server is not asked: only the URL, the ref and
    /// the credentials are checked.
    ///
    /// # Errors
    /// What the operator would tell, with what to do.
    pub async fn run(
        &self,
        mut credentials: Credentials,
        offline: bool,
    ) -> Result<Option<Found>, Failure> {
        git::check_path(self.path).map_err(|error| failure(&error))?;
        if let Some(app) = credentials.app().cloned().filter(|_| !offline) {
            let token = app.token(&self.dialler, &credentials).await;
            credentials = credentials.with_token(&token.map_err(|error| {
                let error = SourceError::from(error);
                let failure = Failure::new(CLUSTER, error.to_string());
                Failure { hint: error.hint(), ..failure }
            })?);
        }
        let failed = |error: std::io::Error| {
            Failure::new(CLUSTER, format!("cannot keep fetched objects: {error}"))
        };
        // It is deleted when this ends.
        let folder = tempfile::Builder::new().prefix("convoke-").tempdir().map_err(failed)?;
        let remote = Remote::new(RemoteOptions {
            url: self.url.to_owned(),
            reference: self.reference.clone(),
            timeout: self.timeout,
            silence: self.timeout,
            dialler: self.dialler.clone(),
            credentials,
            verification: None,
            owner: String::new(),
            repositories: Repositories::new(folder.path().join("repositories"), u64::MAX)
                .map_err(failed)?,
            wake: None,
            limits: git::Limits::default(),
        });
        let remote = remote.map_err(|error| failure(&error))?;
        if offline {
            return Ok(None);
        }
        let read = self.read(&remote).await;
        read.map(Some).map_err(|error| failure(&error))
    }

    async fn read(&self, remote: &Remote) -> Result<Found, GitError> {
        let revision = remote.resolve().await?;
        remote.fetch(&revision).await?;
        let snapshot = remote.snapshot(&revision.commit, self.path).await?;
        let context = Context {
            namespace: Some(self.namespace.to_owned()),
            path: self.path.to_owned(),
            ignore: Patterns::default(),
            variables: None,
        };
        let catalog = Loader::new(Limits::default()).load(&*snapshot, &context);
        let objects =
            format!("{} in {}", count(catalog.documents, "object"), count(catalog.files, "file"));
        let Revision { commit, name } = revision;
        let at = if name.is_empty() { commit } else { format!("{name} is at {commit}") };
        let mut text = format!("{}: {at}: {objects}\n", self.url);
        let is_error = |problem: &&Problem| problem.severity == Severity::Error;
        let errors: Vec<_> = catalog.problems.iter().filter(is_error).cloned().collect();
        if !errors.is_empty() {
            let first = &errors[..errors.len().min(SHOWN)];
            text += &diagnostic::render_text(first, Some(&*snapshot));
            let which =
                if errors.len() > first.len() { ", of which the first are shown" } else { "" };
            text += &format!(
                "\n{} in that commit{which}: its GitSync will not be Ready until they are mended\n",
                count(errors.len(), "error")
            );
        }
        let mut all = catalog.definitions.iter();
        let has_model_proxy = all.any(|(id, definition)| {
            id.kind == Kind::ModelAPI && definition.spec.json()["mode"] == "Proxy"
        });
        Ok(Found { text, has_model_proxy })
    }
}

/// The failure of the command. Hints name its options, where they are about credentials.
fn failure(error: &GitError) -> Failure {
    let code = if error.is_terminal() { USAGE } else { CLUSTER };
    let hint = match error {
        GitError::AuthenticationFailed { given: false, .. } => Some(
            "give credentials: --from-file token=FILE, or --from-literal username=NAME with --from-file password=FILE",
        ),
        GitError::AuthenticationFailed { status: 401, .. } => {
            Some("the password or token is wrong or has expired")
        }
        GitError::AuthenticationFailed { .. } => Some("this user may not read the repository"),
        GitError::CredentialsNeeded => Some(
            "give a private key and the keys of the server: --from-file identity=FILE --from-file known_hosts=FILE",
        ),
        GitError::CertificateNotTrusted { why } if git::is_of_authority(why) => Some(
            "give the authority that signed it: --from-file ca.crt=FILE (what was given, if anything, did not sign it; this machine may trust others than the operator's)",
        ),
        GitError::ClientCertificateRefused { .. } => {
            Some("the client certificate is --from-file tls.crt=FILE --from-file tls.key=FILE")
        }
        GitError::ProxyFailed { hint, .. } => Some(*hint),
        GitError::InsecureConnection { .. } => {
            Some("use https; --allow-insecure-git says that the operator runs with that flag, too")
        }
        GitError::PathMissing { nearest, .. } if nearest.is_empty() => {
            Some("push the folder first, or print the objects without asking the server: --offline")
        }
        GitError::Redirected { .. } => Some("give the new address with --url"),
        GitError::Timeout { .. } => Some("raise --timeout if the repository is large"),
        _ => None,
    };
    let hint = hint.map(str::to_owned).or_else(|| match error {
        GitError::AddressRefused(refused) if refused.could_be_allowed() => Some(format!(
            "{}; give this command the flags that the operator runs with",
            error.hint()?
        )),
        _ => error.hint(),
    });
    let failure = Failure::new(code, error.to_string());
    Failure { hint, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d7_a_folder_that_is_not_there_yet_is_pushed_first() {
        let hint = |nearest: &[&str]| {
            let nearest = nearest.iter().map(|&name| name.to_owned()).collect();
            failure(&GitError::PathMissing { path: "newsroom".into(), nearest }).hint
        };
        let first = hint(&[]).unwrap_or_default();
        assert!(first.starts_with("push the folder first") && first.ends_with("--offline"));
        // What is about deletes is for a GitSync that has synced the folder.
        assert!(!first.contains("delete"), "{first}");
        assert_eq!(hint(&["news"]).as_deref(), Some("did you mean news?"));
    }
}
