//! With whose rights a request is made: the operator's own, or those of a ServiceAccount that it acts as.

use std::fmt;

/// A ServiceAccount that the operator acts as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Account {
    /// `None` unless both are DNS labels: an empty name, or one that reaches beyond the namespace
    /// (`system:masters`, `a/b`), is nobody to act as.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Option<Self> {
        let valid = is_dns_label(namespace) && is_dns_label(name);
        valid.then(|| Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The user that the API server knows it by.
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

/// A DNS label (RFC 1123).
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let inside = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inside)
        && !text.starts_with('-')
        && !text.ends_with('-')
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
