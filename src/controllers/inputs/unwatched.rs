//! Objects that no watch shows, because they lack the label or do not exist. One request for each object says which of the two.

use kube::Api;
use kube::api::ObjectMeta;

use super::Inputs;
use super::decide::InputState;
use super::follow::Questions;
use super::references::{Reference, Source, Use};
use super::watched::{WatchedConfigMap, WatchedSecret};
use crate::api::keys;
use crate::cluster::client::{CallError, call};

impl Inputs {
    /// Asks the API server for an object that is not among the labelled ones, and returns its state. `questions` is how many
    /// requests this reconcile may still send.
    pub(super) async fn unwatched(
        &self,
        namespace: &str,
        reference: &Reference,
        used: &Use,
        questions: &mut Questions,
    ) -> InputState {
        let missing = if used.required { InputState::Missing } else { InputState::OptionalMissing };
        // Then no command in a message names it, and no request is needed.
        if !reference.is_possible() {
            return missing;
        }
        let Some(left) = questions.left.checked_sub(1) else {
            return InputState::MissingOrUnlabelled;
        };
        questions.left = left;
        let asked = self.metadata(namespace, reference);
        let Ok(answer) = tokio::time::timeout_at(questions.until, asked).await else {
            questions.left = 0;
            return InputState::MissingOrUnlabelled;
        };
        match answer {
            Ok(None) => missing,
            // The watch is a moment behind, and wakes the object when it has seen the change.
            Ok(Some(metadata)) if is_allowed(&metadata) => InputState::Unknown,
            Ok(Some(_)) => InputState::Unlabelled,
            // Pods start without it, so the missing right holds nothing.
            Err(error) if error.is_forbidden() && !used.required => InputState::Unknown,
            Err(error) if error.is_forbidden() => InputState::MissingOrUnlabelled,
            Err(_) => {
                // The next request would probably fail, too, and take as long.
                questions.left = 0;
                InputState::MissingOrUnlabelled
            }
        }
    }

    /// The state of a Secret that has the name of one with keys that Convoke makes. Those are never labelled, and one that is missing
    /// may be made at any time. So only one that is seen to be labelled is allowed: no definition reads the keys of others.
    pub(super) async fn made(
        &self,
        namespace: &str,
        reference: &Reference,
        questions: &mut Questions,
    ) -> InputState {
        let Some(left) = questions.left.checked_sub(1) else {
            return InputState::MissingOrUnlabelled;
        };
        questions.left = left;
        let asked = self.metadata(namespace, reference);
        match tokio::time::timeout_at(questions.until, asked).await {
            Ok(Ok(Some(metadata))) if is_allowed(&metadata) => InputState::Unknown,
            Ok(Ok(Some(_))) => InputState::Unlabelled,
            Ok(Err(error)) if error.is_forbidden() => InputState::Unseen,
            Ok(Ok(None) | Err(_)) | Err(_) => InputState::MissingOrUnlabelled,
        }
    }

    /// The metadata of an object, if it exists. Its data is not read.
    pub(super) async fn metadata(
        &self,
        namespace: &str,
        reference: &Reference,
    ) -> Result<Option<ObjectMeta>, CallError> {
        if !reference.is_possible() {
            return Ok(None);
        }
        let (client, name) = (self.client.clone(), reference.name.as_str());
        match reference.source {
            Source::ConfigMap => {
                let api: Api<WatchedConfigMap> = Api::namespaced(client, namespace);
                Ok(call(api.get_metadata_opt(name)).await?.map(|found| found.metadata))
            }
            Source::Secret => {
                let api: Api<WatchedSecret> = Api::namespaced(client, namespace);
                Ok(call(api.get_metadata_opt(name)).await?.map(|found| found.metadata))
            }
        }
    }
}

/// Whether an object has the label that allows pods to read it.
fn is_allowed(metadata: &ObjectMeta) -> bool {
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(keys::AGENTS));
    label.is_some_and(|value| value == keys::ALLOW)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a13_only_the_whole_label_allows() {
        let of = |labels: Value| {
            let metadata = json!({"name": "n", "labels": labels});
            is_allowed(&serde_json::from_value(metadata).expect("metadata"))
        };
        assert!(of(json!({"convoke.dev/agents": "allow", "team": "blue"})));
        assert!(!of(json!({"convoke.dev/agents": "deny"})) && !of(json!({})) && !of(json!(null)));
    }
}
