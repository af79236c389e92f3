//! Whether the Secrets of a build that was refused access are others by now: then it is tried again.
//!
//! Nobody watches these Secrets: the operator has the right to read those that are named, and no other. So a run keeps a digest of what was in
//! them when it was made, and those of a run that was refused access are read again from time to time. The digest is a MAC: it tells nothing to
//! those who read it. The next run has the digest of what is there then, so each change is one try.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use serde_json::Value;

use super::Controller;
use super::failure::may_be_of_credentials;
use super::reconcile::Subject;
use super::resolve::Resolved;
use super::run::{CREDENTIALS, Run};
use crate::api::agent_build::BuildFailure;
use crate::api::keys;
use crate::cluster::client::call;

/// What says for what a Secret may be used.
const GUARDS: [&str; 3] = [keys::GIT_ORIGINS, keys::REPOSITORIES, keys::REGISTRIES];

impl Controller {
    /// Notes in the manifest of a run which Secrets it is made with. Whoever calls it reads their values later: if one changes between, it is
    /// tried once more than needed.
    pub(super) async fn note_credentials(
        &self,
        subject: &Subject<'_>,
        resolved: &Resolved,
        manifest: &mut Value,
    ) {
        if let Some(digest) = self.credentials_digest(subject, resolved).await {
            manifest["metadata"]["annotations"][CREDENTIALS] = digest.into();
        }
    }

    /// Whether the Secrets of a run that failed for want of access are others by now.
    pub(super) async fn renewed(
        &self,
        subject: &Subject<'_>,
        resolved: &Resolved,
        run: Option<&Run>,
        failure: Option<&BuildFailure>,
    ) -> bool {
        let Some(before) = run.and_then(|run| run.credentials.as_deref()) else { return false };
        if !failure.is_some_and(may_be_of_credentials) {
            return false;
        }
        let digest = self.credentials_digest(subject, resolved).await;
        digest.is_some_and(|digest| digest != before)
    }

    /// A digest of the Secrets that a build names, of none if it names none, and of what they may be used for. `None` while one of them cannot
    /// be read.
    async fn credentials_digest(
        &self,
        subject: &Subject<'_>,
        resolved: &Resolved,
    ) -> Option<String> {
        let key = self.proofs.seals()?;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &subject.key.namespace);
        let push = subject.build.spec.output.secret_ref.as_ref();
        let push = push.map(|secret| ("push", secret.name.as_str()));
        // Of this build: equal Secrets of others have another digest.
        let mut parts = vec![subject.entry.uid.as_bytes().to_vec()];
        for (purpose, name) in resolved.access.secrets().chain(push) {
            let secret = call(api.get_opt(name)).await.ok()??;
            let annotations = secret.annotations();
            let guards = GUARDS.map(|guard| annotations.get(guard).cloned().unwrap_or_default());
            let data = secret.data.unwrap_or_default();
            parts.extend([purpose, name].map(|text| text.as_bytes().to_vec()));
            parts.extend(guards.map(String::into_bytes));
            parts.push(data.len().to_string().into_bytes());
            parts.extend(data.into_iter().flat_map(|(key, value)| [key.into_bytes(), value.0]));
        }
        Some(key.of_credentials(&parts))
    }
}
