//! Flags for what the GitSync says besides the path: `convoke validate` and `convoke plan` take the same.

use clap::Args as ClapArgs;

use super::{Failure, USAGE};
use crate::definition::Context;
use crate::definition::ignore::Patterns;

/// What the GitSync says.
#[derive(Debug, ClapArgs)]
pub struct ContextArgs {
    /// Leave out what matches, as spec.ignore of the GitSync does (may be repeated)
    #[arg(long, value_name = "PATTERN")]
    ignore: Vec<String>,
}

impl ContextArgs {
    /// The context of a folder of the repository.
    pub(super) fn resolve(&self, path: &str) -> Result<Context, Failure> {
        let ignore = Patterns::new(&self.ignore)
            .map_err(|error| Failure::new(USAGE, format!("--ignore: {error}")))?;
        Ok(Context { namespace: None, path: path.to_owned(), ignore })
    }
}
