//! What a write has changed of a child.

use serde_json::Value;

use super::{Child, ChildKind, Content, HASH};
use crate::cluster::store::Entry;
use crate::packed::Packed;

/// What a write has changed of a child.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wrote {
    /// Nothing: the child is as it was.
    #[default]
    Nothing,
    /// The child is new.
    Created,
    /// The pod template. The pods are replaced.
    Pods,
    /// Something else than the pod template.
    Rest,
}

impl Wrote {
    /// Compares the child before a write, if there was one, with the reply.
    pub(super) fn of<K: ChildKind>(
        before: Option<&Entry<Child<K>>>,
        reply: &Entry<Child<K>>,
    ) -> Self {
        let Some(before) = before else { return Self::Created };
        if before.version == reply.version {
            return Self::Nothing;
        }
        let pods = match (&before.value.content, &reply.value.content) {
            (Content::Whole(before), Content::Whole(reply)) => template(before) != template(reply),
            // The old pod template is not known. But a new hash means that another child was wanted.
            _ => before.value.about(HASH) != reply.value.about(HASH),
        };
        if pods { Self::Pods } else { Self::Rest }
    }
}

/// The pod template of a Deployment.
fn template(object: &Packed) -> Option<Value> {
    object.json().pointer("/spec/template").cloned()
}
