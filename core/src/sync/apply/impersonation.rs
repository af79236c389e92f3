//! The account that the objects of a GitSync are written with, and the errors when it is missing or lacks rights.
//!
//! Statuses, events and the finalizer of the GitSync are always written by the operator itself.

use std::sync::LazyLock;

use regex::Regex;

use crate::api::Kind;
use crate::cluster::account::Account;
use crate::cluster::call_error::CallError;
use crate::sync::io::Io;
use crate::sync::io::effect::{Call, Reply};
use crate::sync::reasons::EngineReason;
use crate::sync::subject::Subject;

/// Why no object of a GitSync can be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The condition's reason.
    pub reason: EngineReason,
    /// The message of the condition: what is missing, and how to add it.
    pub message: String,
    /// Whether only a change of the spec (or of the operator's flags) can help.
    pub stalled: bool,
}

/// The flags of the operator that decide on the account of writes.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Where no ServiceAccount is named, the operator writes with its own rights.
    pub single_tenant: bool,
    /// The ServiceAccount of GitSyncs that name none, in the namespace of the GitSync.
    pub default_service_account: Option<String>,
    /// The namespace of the operator, for hints.
    pub operator_namespace: String,
}

/// When the account of a GitSync is checked at the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccountCheck {
    /// Before writes: always.
    Always,
    /// Without writes: only if it was not checked before.
    UnlessKnown,
}

impl Rules {
    /// The account that writes the objects of a GitSync; `None` for the operator itself.
    ///
    /// # Errors
    /// No account is named, or the name is invalid. Then nothing is written.
    pub fn account(&self, namespace: &str, name: Option<&str>) -> Result<Option<Account>, Refusal> {
        let Some(name) = name.or(self.default_service_account.as_deref()) else {
            let message = "no ServiceAccount to write with: set spec.serviceAccountName, or start the operator with \
                --default-service-account, or with --single-tenant to use its own rights";
            let reason = EngineReason::ServiceAccountRequired;
            let refusal = Refusal { reason, message: message.into(), stalled: true };
            return if self.single_tenant { Ok(None) } else { Err(refusal) };
        };
        match Account::new(namespace, name) {
            Some(account) => Ok(Some(account)),
            None => Err(Refusal {
                reason: EngineReason::InvalidServiceAccount,
                message: format!("{name:?} is no name of a ServiceAccount: it must be a DNS label"),
                stalled: true,
            }),
        }
    }

    /// The account that writes the objects of a GitSync, if it can be used; `None` for the operator itself. `known` is the
    /// account that was checked last without an error.
    ///
    /// The API server allows impersonation of a ServiceAccount that does not exist. So its existence is checked before each
    /// plan that writes: who deletes a ServiceAccount ends the writes of its GitSyncs, even if role bindings still name it.
    pub(crate) async fn writer(
        &self,
        known: &mut Option<Account>,
        subject: &Subject<'_>,
        check: AccountCheck,
    ) -> Result<Option<Account>, Refusal> {
        let name = subject.sync.spec.service_account_name.as_deref();
        let account = self.account(&subject.key.namespace, name)?;
        let Some(account) = account else { return Ok(None) };
        let is_known = known.as_ref() == Some(&account);
        if is_known && check == AccountCheck::UnlessKnown {
            return Ok(Some(account));
        }
        *known = None;
        self.find(subject.io, &account).await?;
        if !is_known {
            self.try_out(subject.io, &account).await?;
        }
        *known = Some(account.clone());
        Ok(Some(account))
    }

    async fn find(&self, io: &Io, account: &Account) -> Result<(), Refusal> {
        match io.ask(None, Call::FindAccount(account.clone())).await {
            Ok(Reply::Found { deleting: false }) => Ok(()),
            Err(error) if error.is_forbidden() => Err(self.may_not_act(account, &error)),
            Err(error) if !error.is_gone() => Err(Refusal {
                reason: EngineReason::ApplyFailed,
                message: format!("{account} cannot be looked at: {}; trying again", error.words()),
                stalled: false,
            }),
            Ok(_) | Err(_) => Err(Refusal {
                reason: EngineReason::ServiceAccountNotFound,
                message: format!(
                    "{account} does not exist, so nothing is written; hint: kubectl -n {} create serviceaccount {}",
                    account.namespace, account.name
                ),
                stalled: false,
            }),
        }
    }

    /// Sends one request as the account, so that a missing right is reported before the first write.
    async fn try_out(&self, io: &Io, account: &Account) -> Result<(), Refusal> {
        match io.ask(Some(account), Call::TryAccount).await {
            Err(error) if is_about_impersonation(&error) => Err(self.may_not_act(account, &error)),
            // The account may lack the right to ask this. Then the writes show whether impersonation works.
            _ => Ok(()),
        }
    }

    fn may_not_act(&self, account: &Account, error: &CallError) -> Refusal {
        let Account { namespace, name, .. } = account;
        let Rejection { words, denial } = Rejection::of(error);
        let me = denial.and_then(|denial| denial.account());
        let me = me.unwrap_or_else(|| format!("{}:convoke", self.operator_namespace));
        let message = format!(
            "the operator may not act as {account}; hint: kubectl -n {namespace} create role \
             convoke-act-as-{name} --verb=get,impersonate --resource=serviceaccounts --resource-name={name}; \
             kubectl -n {namespace} create rolebinding convoke-act-as-{name} --role=convoke-act-as-{name} \
             --serviceaccount={me}; the server says: {words}"
        );
        Refusal { reason: EngineReason::ImpersonationForbidden, message, stalled: false }
    }
}

/// Whether the operator lacks the right to impersonate, rather than the account a right.
fn is_about_impersonation(error: &CallError) -> bool {
    Rejection::of(error).denial.is_some_and(|denial| denial.is_about_impersonation())
}

/// The answer of the API server to a request that it refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The message.
    pub words: String,
    /// The missing right, if that is the reason.
    pub denial: Option<Denial>,
}

impl Rejection {
    /// Reads the error of a request.
    #[must_use]
    pub fn of(error: &CallError) -> Self {
        let denial = error.refusal().and_then(Denial::of);
        Self { words: error.words(), denial }
    }
}

/// A missing right, as named by the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The user that was refused, such as `system:serviceaccount:team:sync`.
    pub user: String,
    /// The verb, such as `patch`.
    pub verb: String,
    /// The resource, such as `agents.convoke.dev`.
    pub resource: String,
}

impl Denial {
    /// Reads a message of the API server. Its status has these fields only in the message.
    fn of(message: &str) -> Option<Self> {
        static SHAPE: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r#"User "([^"]+)" cannot (\S+) resource "([^"]+)" in API group "([^"]*)""#)
                .ok()
        });
        let found = SHAPE.as_ref()?.captures(message)?;
        let (user, verb) = (found[1].to_owned(), found[2].to_owned());
        let resource = match &found[4] {
            "" => found[3].to_owned(),
            group => format!("{}.{group}", &found[3]),
        };
        Some(Self { user, verb, resource })
    }

    /// Whether the operator lacks the right to impersonate.
    pub(super) fn is_about_impersonation(&self) -> bool {
        self.verb.starts_with("impersonate")
    }

    /// `namespace:name` of a ServiceAccount, as kubectl expects it.
    fn account(&self) -> Option<String> {
        self.user.strip_prefix("system:serviceaccount:").map(str::to_owned)
    }

    /// The missing right in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let who = self.account().map_or_else(
            || format!("user {}", self.user),
            |account| format!("ServiceAccount {}", account.replace(':', "/")),
        );
        format!("{who} may not {} {}", self.verb, self.resource)
    }

    /// How to fix it: the commands that grant the account of a GitSync its rights in the namespace. If the refused user is no
    /// account of that namespace, it is the operator, and the hint names its manifest.
    #[must_use]
    pub fn hint(&self, namespace: &str) -> String {
        let account = self.account().unwrap_or_default();
        let Some(name) = account.strip_prefix(namespace).and_then(|rest| rest.strip_prefix(':'))
        else {
            return "with --single-tenant the operator needs the rights of deploy/single-tenant.yaml".into();
        };
        let kinds: Vec<_> = Kind::ALL
            .iter()
            .map(|kind| format!("{}.{}", kind.plural(), crate::api::GROUP))
            .collect();
        format!(
            "kubectl -n {namespace} create role {name} --verb=get,create,patch,delete --resource={}; \
             kubectl -n {namespace} create rolebinding {name} --role={name} --serviceaccount={account}",
            kinds.join(",")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = r#"agents.convoke.dev "a" is forbidden: User "system:serviceaccount:team:sync" cannot patch resource "agents" in API group "convoke.dev" in the namespace "team""#;

    #[test]
    fn g16_a_denial_says_who_what_and_how_to_allow_it() {
        let denial = Denial::of(WORDS).expect("a denial");
        assert_eq!(denial.sentence(), "ServiceAccount team/sync may not patch agents.convoke.dev");
        assert_eq!(
            denial.hint("team"),
            "kubectl -n team create role sync --verb=get,create,patch,delete \
             --resource=modelapis.convoke.dev,mcpservers.convoke.dev,agentbuilds.convoke.dev,agents.convoke.dev; \
             kubectl -n team create rolebinding sync --role=sync --serviceaccount=team:sync"
        );
        assert!(denial.hint("te").contains("single-tenant"), "an account of another namespace");
        // A policy's refusal is not about rights.
        assert_eq!(
            Denial::of(r#"agents "a" is forbidden: ValidatingAdmissionPolicy denied request: no"#),
            None
        );
    }

    #[test]
    fn g16_nobody_named_is_refused_and_the_nearest_name_counts() {
        let rules = |default: Option<&str>, single_tenant| Rules {
            single_tenant,
            default_service_account: default.map(str::to_owned),
            operator_namespace: "convoke-system".into(),
        };
        let ask = |default, single_tenant, name| {
            let found = rules(default, single_tenant).account("team", name);
            found.map(|account| account.map(|a| a.name)).map_err(|refusal| refusal.reason)
        };
        let some = |name: &str| Ok(Some(name.to_owned()));
        assert_eq!(ask(None, false, None), Err(EngineReason::ServiceAccountRequired));
        assert_eq!(ask(None, true, None), Ok(None));
        assert_eq!(ask(Some("default"), true, None), some("default"));
        assert_eq!(ask(Some("default"), false, Some("own")), some("own"));
        assert_eq!(ask(None, true, Some("own")), some("own"));
        // An empty name is not "no name".
        for name in ["", "system:masters"] {
            assert_eq!(
                ask(Some("default"), true, Some(name)),
                Err(EngineReason::InvalidServiceAccount)
            );
        }
    }
}
