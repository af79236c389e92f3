//! The ServiceAccount that the operator impersonates in a request, and the operator's own account.

use std::fmt;
use std::sync::{Arc, OnceLock};

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

/// The operator's own account, for commands that give it rights. Until the API server has said who the operator is, it is the
/// ServiceAccount `convoke` of the operator's namespace, as in the shipped manifests.
#[derive(Debug, Clone)]
pub struct OperatorAccount {
    namespace: String,
    user: Arc<OnceLock<String>>,
}

impl OperatorAccount {
    /// `namespace` is the operator's own.
    #[must_use]
    pub fn new(namespace: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), user: Arc::default() }
    }

    /// Takes over the user that the API server calls the operator. A name that is not plain is ignored, because it becomes part
    /// of a command that people run.
    pub fn set_user(&self, user: &str) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '.' | '_' | '@');
        if !user.is_empty() && user.chars().all(plain) {
            let _ = self.user.set(user.to_owned());
        }
    }

    /// The flag with which `kubectl create rolebinding` names the account: `--serviceaccount=NAMESPACE:NAME` or `--user=NAME`.
    #[must_use]
    pub fn flag(&self) -> String {
        match self.user.get().map(|user| (user, user.strip_prefix("system:serviceaccount:"))) {
            Some((_, Some(account))) => format!("--serviceaccount={account}"),
            Some((user, None)) => format!("--user={user}"),
            None => format!("--serviceaccount={}:convoke", self.namespace),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g16_the_operator_is_named_as_kubectl_expects_it() {
        let flag = |user: &str| {
            let account = OperatorAccount::new("ops");
            account.set_user(user);
            account.flag()
        };
        assert_eq!(flag("system:serviceaccount:ops-1:convoke"), "--serviceaccount=ops-1:convoke");
        assert_eq!(flag("jo@x.org"), "--user=jo@x.org");
        for unknown in ["", "a; rm"] {
            assert_eq!(flag(unknown), "--serviceaccount=ops:convoke", "nothing odd in a command");
        }
    }

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
