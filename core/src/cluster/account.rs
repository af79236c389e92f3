//! The ServiceAccount that the operator impersonates in a request.

use std::fmt;

use crate::text::is_dns_label;

/// A ServiceAccount that the operator impersonates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Account {
    /// `None` unless both are DNS labels. Other names are not impersonated: an empty one, or one that could be a user or group
    /// outside of the namespace (`system:masters`, `a/b`).
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Option<Self> {
        let valid = is_dns_label(namespace) && is_dns_label(name);
        valid.then(|| Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The name of the user in the API server.
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceAccount {}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g16_only_a_name_inside_the_namespace_is_somebody() {
        assert!(Account::new("team", "sync").is_some());
        for name in ["", "system:masters", "a/b", "Sync", "-a", "a-", "a.b", "a:b", "a\nb"] {
            assert_eq!(Account::new("team", name), None, "{name:?}");
            assert_eq!(Account::new(name, "sync"), None, "{name:?}");
        }
        assert_eq!(Account::new("team", &"a".repeat(64)), None);
    }
}
