//! `convoke crds`: prints all CRDs as YAML, for `kubectl apply --server-side -f -`.

use std::process::ExitCode;

use super::{Failure, print};

/// The CRDs as a stream of YAML documents.
pub fn yaml() -> Result<String, Failure> {
    let mut text = String::new();
    for crd in crate::api::crds() {
        // A JSON value has sorted keys, so the output is stable.
        let value =
            serde_json::to_value(&crd).map_err(|e| Failure::new(super::FOUND, e.to_string()))?;
        let document = serde_saphyr::to_string(&value)
            .map_err(|e| Failure::new(super::FOUND, e.to_string()))?;
        text.push_str("---\n");
        text.push_str(&document);
        if !text.ends_with('\n') {
            text.push('\n');
        }
    }
    Ok(text)
}

pub fn run() -> Result<ExitCode, Failure> {
    print(&yaml()?)
}
