//! The APIs of forges (GitHub, GitLab, Gitea): telling them what became of a commit.
//!
//! ```text
//! api    (pure) the request for a commit status, from the URL of the repository
//! post   sends it, and reads what the forge says
//! ```

pub mod api;
pub mod post;

pub use self::api::{CommitStatus, Forge, State};
pub use self::post::{Refused, post};
