//! Provenance: what was built of which commit, attested beside the image and signed with the operator's key.
//!
//! ```text
//! statement (pure) what is said of a build, from its PipelineRun
//! key       (pure) the keys, and signatures
//! dsse      (pure) the envelope of a statement
//! seal      (pure) whether the operator has made the PipelineRun
//! refusal   (pure) whether it is ever attested
//! secret    the key in the operator's namespace, and the public one beside it
//! tries     when a run whose attestation failed is tried again
//! attest    writes the attestation of a run that has succeeded
//! ```
//! Whether a run is to be attested stands in its spec, and that it is in an annotation. A run that has succeeded and is not attested yet has built
//! nothing so far ([`super::run::RunOutcome::Unattested`]). So nothing has to be remembered, and a restart goes on.

mod attest;
pub mod dsse;
pub mod key;
pub mod refusal;
pub mod seal;
mod secret;
pub mod statement;
pub mod tries;

pub(super) use self::attest::asks_for_provenance;
pub use self::attest::{Signing, Unattested};
