//! The mark: the annotation that names the GitSync that owns an object.

use std::fmt;

use super::Kind;

/// `<syncUID>/<syncNamespace>/<syncName>/<Kind>/<namespace>/<name>`.
///
/// It also names the object that carries it. So a copy of the object under another name, with a copy of the mark, does not
/// belong to the GitSync and is never pruned.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mark {
    /// UID of the GitSync.
    pub sync_uid: String,
    /// Namespace of the GitSync.
    pub sync_namespace: String,
    /// Name of the GitSync.
    pub sync_name: String,
    /// Kind of the object that carries the mark.
    pub kind: Kind,
    /// Namespace of the object that carries the mark.
    pub namespace: String,
    /// Name of the object that carries the mark.
    pub name: String,
}

impl Mark {
    /// Parses the value of the annotation. `None` when it does not have exactly this form.
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
