//! (pure) What the schema of an Agent may have let through: definitions that are older than a rule.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use crate::api::Agent;
use crate::api::agent::is_reserved_env;

/// One thing that is wrong with a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// A variable that only Convoke may set.
    ReservedEnv {
        /// Path of the list.
        field: &'static str,
        /// Name of the variable.
        name: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReservedEnv { field, name } => write!(f, "{field}: {name} is reserved"),
        }
    }
}

/// All that is wrong; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(pub Vec<Problem>);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&all.join("; "))
    }
}

/// Checks a spec. While it is invalid, its children stay as they are.
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
        .map(|(field, var)| Problem::ReservedEnv { field, name: var.name.clone() })
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
