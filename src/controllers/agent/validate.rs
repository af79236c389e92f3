//! (pure) Step "validate" of an Agent: what the schema may have let through, because the object is older than a rule.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use crate::api::Agent;
use crate::api::agent::is_reserved_env;
use crate::controllers::workload::validate::{Invalid, SpecProblem};

/// Checks a spec.
///
/// # Errors
/// Everything that is wrong, in the order of the spec.
pub fn validate(agent: &Agent) -> Result<(), Invalid> {
    let config = agent.spec.config.iter().flat_map(|config| &config.env);
    let config = config.map(|var| ("config.env", var));
    let env = agent.spec.env.iter().map(|var| ("env", var));
    let problems: Vec<_> = config
        .chain(env)
        .filter(|(_, var)| is_reserved_env(&var.name))
        .map(|(field, var)| SpecProblem::ReservedEnv { field, name: var.name.clone() })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(Invalid(problems)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(spec: serde_json::Value) -> Result<(), String> {
        let agent = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "Agent", "metadata": {"name": "a"}, "spec": spec});
        let agent = serde_json::from_value(agent).expect("agent");
        validate(&agent).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn a2_reserved_names_are_refused_all_at_once() {
        let spec = json!({
            "modelAPI": {"name": "m"},
            "config": {"env": [{"name": "MODEL_NAME", "value": "x"}, {"name": "MODEL_API_URL", "value": "x"}]},
            "env": [{"name": "MCP_SERVER_A_URL", "value": "x"}, {"name": "FINE"}, {"name": "MODEL_NAME", "value": "x"}],
        });
        let expected = "config.env: MODEL_API_URL is reserved; env: MCP_SERVER_A_URL is reserved";
        assert_eq!(checked(spec), Err(expected.to_owned()));
        assert_eq!(checked(json!({"modelAPI": {"name": "m"}})), Ok(()));
    }
}
