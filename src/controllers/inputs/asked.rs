//! Objects that no watch shows, because they lack the label or do not exist: which of the two, one request each tells.

use kube::Api;
use kube::api::ObjectMeta;

use super::Inputs;
use super::decide::Found;
use super::references::{Reference, Source, Use};
use super::watched::{WatchedConfigMap, WatchedSecret};
use crate::api::keys;
use crate::cluster::client::{CallError, call};

impl Inputs {
    /// What is known of an object that is not among the labelled ones, after asking for it.
    pub(super) async fn told_apart(
        &self,
        namespace: &str,
        reference: &Reference,
        used: &Use,
        questions: &mut usize,
    ) -> Found {
        let missing = if used.required { Found::Missing } else { Found::Gone };
        // No question is needed, and none of the messages that have a command names it.
        if !reference.is_possible() {
            return missing;
        }
        let Some(left) = questions.checked_sub(1) else { return Found::Absent };
        *questions = left;
        match self.metadata(namespace, reference).await {
            Ok(None) => missing,
            // The watch is a moment behind, and tells when it has seen it.
            Ok(Some(metadata)) if is_allowed(&metadata) => Found::Unknown,
            Ok(Some(_)) => Found::Unlabelled,
            // Pods start when it is missing, and a missing right stops nothing.
            Err(error) if error.is_forbidden() && !used.required => Found::Unknown,
            Err(error) if error.is_forbidden() => Found::Absent,
            Err(_) => {
                // The next question would take as long.
                *questions = 0;
                Found::Absent
            }
        }
    }

    /// The metadata of an object, if it exists. Its data is not asked for.
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

/// Whether an object has the label by which pods may read it.
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
