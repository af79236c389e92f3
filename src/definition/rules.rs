//! What is left when the structure is right: defaults, the kind's CEL rules, and the typed form.

use kube::core::cel::{ErrorKind, validate_compiled};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::agent::AgentSpec;
use crate::api::agent_build::AgentBuildSpec;
use crate::api::mcp_server::MCPServerSpec;
use crate::api::model_api::ModelAPISpec;
use crate::api::{self, Kind};

use super::diagnostic::{Code, Sink};
use super::node::Node;
use super::schema::KindSchema;

/// Runs the rules on a document whose structure was checked. Gives the canonical spec when all hold.
pub(super) fn run(
    kind: Kind,
    name: &str,
    schema: &KindSchema,
    root: &Node,
    spec: &Node,
    sink: &mut Sink<'_>,
) -> Option<Value> {
    let mut defaulted = spec.to_value();
    schema.spec.fill_defaults(&mut defaulted);
    let object = json!({
        "apiVersion": api::API_VERSION,
        "kind": kind.as_str(),
        "metadata": { "name": name },
        "spec": defaulted,
    });
    let before = sink.errors();
    for error in validate_compiled(&schema.rules, &object, None).err().into_iter().flatten() {
        let message = match error.kind {
            ErrorKind::ValidationFailure => error.message,
            // The evaluator's text may quote values; the rule is ours.
            _ => format!("a rule could not be evaluated: {}", error.rule),
        };
        sink.error(root.locate(&error.field_path), Code::Rule, message, None);
    }
    if sink.errors() > before {
        return None;
    }
    let Value::Object(mut object) = object else { return None };
    let defaulted = object.remove("spec").unwrap_or_default();
    let canonical = match kind {
        Kind::Agent => through::<AgentSpec>(defaulted),
        Kind::ModelAPI => through::<ModelAPISpec>(defaulted),
        Kind::MCPServer => through::<MCPServerSpec>(defaulted),
        Kind::AgentBuild => through::<AgentBuildSpec>(defaulted),
    };
    if canonical.is_none() {
        let message = format!("the spec does not fit the type {kind} of this operator");
        sink.error(spec.at, Code::DoesNotFit, message, None);
    }
    canonical
}

/// To the type and back. Errors are dropped: serde quotes values in them.
fn through<T: Serialize + DeserializeOwned>(spec: Value) -> Option<Value> {
    serde_json::to_value(serde_json::from_value::<T>(spec).ok()?).ok()
}
