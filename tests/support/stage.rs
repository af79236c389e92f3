//! A namespace with objects of ours and their pods, on whatever cluster.

use std::time::Duration;

use convoke::api::Kind;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::eventually;

/// How long anything may take that should take a moment.
pub const SOON: Duration = Duration::from_secs(40);

/// See the module.
pub struct Stage {
    pub client: Client,
    pub namespace: String,
    /// How long a status may take to tell something.
    pub patience: Duration,
}

impl Stage {
    pub fn api(&self, kind: Kind) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("convoke.dev", "v1alpha1", kind.as_str());
        let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural());
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Applies an object of ours with this spec: what another apply named and this does not is gone.
    pub async fn apply(&self, kind: Kind, name: &str, spec: Value) {
        let object = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": kind.as_str(), "metadata": {"name": name}, "spec": spec});
        let params = PatchParams::apply("tester").force();
        self.api(kind).patch(name, &params, &Patch::Apply(&object)).await.expect("apply");
    }

    /// An agent that waits for nothing, with these fields besides.
    pub async fn agent(&self, name: &str, more: Value) {
        let mut spec =
            json!({"modelAPI": {"name": "gpt"}, "model": "m", "waitForDependencies": false});
        if let (Some(spec), Value::Object(more)) = (spec.as_object_mut(), more) {
            spec.extend(more);
        }
        self.apply(Kind::Agent, name, spec).await;
    }

    /// Waits until the status of an object, of its newest generation, satisfies `is`.
    pub async fn status(
        &self,
        kind: Kind,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(self.patience, &format!("{kind} {name}: {what}"), || async {
            let object = self.api(kind).get(name).await.map_err(|e| json!(e.to_string()))?;
            let status = object.data["status"].clone();
            let fresh = status["observedGeneration"] == json!(object.metadata.generation);
            if fresh && is(&status) { Ok(status) } else { Err(status) }
        })
        .await
    }

    /// Waits until an agent tells this phase and this reason of Ready.
    pub async fn told(&self, agent: &str, phase: &str, reason: &str) -> Value {
        let is = |s: &Value| s["phase"] == phase && condition(s, "Ready")["reason"] == reason;
        self.status(Kind::Agent, agent, &format!("{phase}, {reason}"), is).await
    }

    /// The names of the pods of an object that are not on their way out, oldest first.
    pub async fn names(&self, kind: Kind, name: &str) -> Vec<String> {
        let labels =
            format!("convoke.dev/kind={},convoke.dev/name={name}", kind.as_str().to_lowercase());
        let list = self.pods().list(&ListParams::default().labels(&labels)).await.expect("list");
        let mut pods = list.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        pods.sort_by_key(|pod| {
            let meta = &pod.metadata;
            (meta.creation_timestamp.as_ref().map(|time| time.0), meta.name.clone())
        });
        pods.into_iter().filter_map(|pod| pod.metadata.name).collect()
    }

    /// Waits until an agent has that many pods.
    pub async fn pods_of(&self, agent: &str, count: usize) -> Vec<String> {
        eventually(self.patience, &format!("{count} pods of {agent}"), || async {
            let names = self.names(Kind::Agent, agent).await;
            if names.len() == count { Ok(names) } else { Err(names) }
        })
        .await
    }

    /// Changes whether the pods of a Deployment see the processes of their node: nothing that Convoke sets or undoes.
    pub async fn sees_the_node(&self, deployment: &str, sees: bool) {
        let sees = if sees { json!(true) } else { Value::Null };
        let patch = json!({"spec": {"template": {"spec": {"hostPID": sees}}}});
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::default();
        deployments.patch(deployment, &params, &Patch::Strategic(&patch)).await.expect("patch");
    }
}

/// What Pod Security says of a pod that sees the processes of its node.
pub const SEES_THE_NODE: &str =
    "violates PodSecurity \"restricted:latest\": host namespaces (hostPID=true)";

/// A condition of a status.
pub fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    status["conditions"]
        .as_array()
        .and_then(|list| list.iter().find(|c| c["type"] == type_))
        .unwrap_or(&Value::Null)
}

/// `True(Reason)` of a condition.
pub fn shown(status: &Value, type_: &str) -> String {
    let condition = condition(status, type_);
    let text = |field: &str| condition[field].as_str().unwrap_or("-").to_owned();
    format!("{}({})", text("status"), text("reason"))
}
