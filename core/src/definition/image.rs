//! The image of an AgentBuild that goes to the operator's registry, which all namespaces share: its name begins with the namespace.

use serde_json::Value;

use super::diagnostic::code;
use super::finding::Finding;
use crate::text::quote;

/// Where the image is.
pub(super) const POINTER: &str = "/spec/output/image";

/// What is wrong with the image of the spec of an AgentBuild. Without a namespace nothing is known.
pub(super) fn finding(spec: &Value, namespace: Option<&str>) -> Option<Finding> {
    let (namespace, output) = (namespace?, &spec["output"]);
    let image = output["image"].as_str()?;
    // Whether another one is the operator's, only the operator knows.
    if !output["registry"].is_null() {
        return None;
    }
    if image.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('/')) {
        return None;
    }
    let message = format!("the image {} does not begin with {namespace}/", quote(image));
    let name = image.rsplit('/').next().unwrap_or_default();
    let hint = format!(
        "write {namespace}/{name}: in the operator's registry each namespace has names of its own; or set output.registry"
    );
    Some(Finding::on_value(POINTER, code::IMAGE_PATH, message).hint(hint))
}

#[cfg(test)]
#[path = "tests/image.rs"]
mod tests;
