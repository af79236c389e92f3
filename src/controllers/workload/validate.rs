//! (pure) What step "validate" finds wrong with a spec.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

/// One thing that is wrong with a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecProblem {
    /// A variable that only Convoke may set.
    ReservedEnv {
        /// Path of the list.
        field: &'static str,
        /// Name of the variable.
        name: String,
    },
}

impl fmt::Display for SpecProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReservedEnv { field, name } => write!(f, "{field}: {name} is reserved"),
        }
    }
}

/// All that is wrong with a spec; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(pub Vec<SpecProblem>);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.0.iter().map(SpecProblem::to_string).collect();
        f.write_str(&all.join("; "))
    }
}
