//! What a write has made of a child.

use serde_json::Value;

use super::{Child, ChildKind, Content, HASH};
use crate::cluster::store::Entry;
use crate::packed::Packed;

/// See the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wrote {
    /// It is as it was.
    #[default]
    Nothing,
    /// It was not there.
    Created,
    /// Its pods are made in another way: they are replaced.
    Pods,
    /// Only something else of it has changed.
    Rest,
}

impl Wrote {
    /// What has become of a child, if it was there before, by the write with this reply.
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
            // What its pods were like is not known, but whether another one was wanted.
            _ => before.value.about(HASH) != reply.value.about(HASH),
        };
        if pods { Self::Pods } else { Self::Rest }
    }
}

/// How pods are made.
fn template(object: &Packed) -> Option<Value> {
    object.json().pointer("/spec/template").cloned()
}
