//! The mark: the annotation by which an object says which GitSync owns it.

use std::fmt;

use super::Kind;

/// `<syncUID>/<syncNamespace>/<syncName>/<Kind>/<namespace>/<name>`.
///
/// It names the object that carries it, so a copied object (mark and all, under another name) is not ours
/// and is never pruned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mark {
    /// UID of the GitSync.
    pub sync_uid: String,
    /// Namespace of the GitSync.
    pub sync_namespace: String,
    /// Name of the GitSync.
    pub sync_name: String,
    /// Kind of the bearer.
    pub kind: Kind,
    /// Namespace of the bearer.
    pub namespace: String,
    /// Name of the bearer.
    pub name: String,
}

impl Mark {
    /// Reads an annotation's value. `None` when it is not of the exact shape.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let mut next = || parts.next().filter(|part| !part.is_empty()).map(str::to_owned);
        let mark = Self {
            sync_uid: next()?,
            sync_namespace: next()?,
            sync_name: next()?,
            kind: Kind::parse(&next()?)?,
            namespace: next()?,
            name: next()?,
        };
        parts.next().is_none().then_some(mark)
    }

    /// Whether the mark names the object that carries it. Any other mark does not count.
    #[must_use]
    pub fn names(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        self.kind == kind && self.namespace == namespace && self.name == name
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sync_uid, sync_namespace, sync_name, kind, namespace, name } = self;
        write!(f, "{sync_uid}/{sync_namespace}/{sync_name}/{kind}/{namespace}/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_round_trips_and_names_only_its_bearer() {
        let text = "1b2c/team/main/Agent/team/helper";
        let mark = Mark::parse(text).expect("valid mark");
        assert_eq!(mark.to_string(), text);
        assert!(mark.names(Kind::Agent, "team", "helper"));
        assert!(!mark.names(Kind::Agent, "team", "copy-of-helper"));
        assert!(!mark.names(Kind::ModelAPI, "team", "helper"));
    }

    #[test]
    fn anything_else_is_no_mark() {
        for text in
            ["", "a", "a/b/c/Agent/e", "a/b/c/Pod/e/f", "a/b/c/Agent/e/f/g", "/b/c/Agent/e/f"]
        {
            assert_eq!(Mark::parse(text), None, "{text}");
        }
    }
}
