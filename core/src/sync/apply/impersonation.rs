//! The account that the objects of a GitSync are written with, and the errors when it is missing or lacks rights.
//!
//! Statuses, events and the finalizer of the GitSync are always written by the operator itself.

use crate::api::Kind;
use crate::cluster::account::{Account, OperatorAccount};
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
    /// The operator's own account, for hints.
    pub operator: OperatorAccount,
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
            Err(error) if error.is_about_service_accounts() => {
                Err(self.may_not_act(account, &error))
            }
            // The account may lack the right to ask this. Then the writes show whether impersonation works.
            _ => Ok(()),
        }
    }

    fn may_not_act(&self, account: &Account, error: &CallError) -> Refusal {
        let Account { namespace, name, .. } = account;
        let (flag, words) = (self.operator.flag(), error.words());
        let message = format!(
            "the operator may not act as {account}; hint: kubectl -n {namespace} create role \
             convoke-act-as-{name} --verb=get,impersonate --resource=serviceaccounts --resource-name={name}; \
             kubectl -n {namespace} create rolebinding convoke-act-as-{name} --role=convoke-act-as-{name} \
             {flag}; the server says: {words}"
        );
        Refusal { reason: EngineReason::ImpersonationForbidden, message, stalled: false }
    }
}

/// The answer of the API server to a request that it refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The message.
    pub words: String,
    /// The missing right, if that is the reason.
    pub denial: Option<Denial>,
}

/// What a request does to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Reads it.
    Get,
    /// Creates it by a server-side apply, which takes two rights.
    Create,
    /// Changes it.
    Patch,
    /// Deletes it.
    Delete,
}

impl Verb {
    /// The rights that the request takes, for people.
    const fn words(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Create => "create or patch",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// A request about an object of a GitSync.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The account that it was sent as; `None` for the operator itself.
    pub account: Option<&'a Account>,
    /// What it does.
    pub verb: Verb,
    /// The kind of the object.
    pub kind: Kind,
}

impl Rejection {
    /// Reads the error of a request.
    #[must_use]
    pub fn of(error: &CallError, attempt: Attempt<'_>) -> Self {
        let Attempt { account, verb, kind } = attempt;
        let account = account.cloned();
        let denial = match account {
            _ if !error.is_missing_right() => None,
            Some(account) if error.is_about_service_accounts() => {
                Some(Denial::Impersonation { account })
            }
            account => Some(Denial::Right { account, verb, kind }),
        };
        Self { words: error.words(), denial }
    }
}

/// A missing right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// The operator may not impersonate the account.
    Impersonation {
        /// The account.
        account: Account,
    },
    /// The account may not make the request.
    Right {
        /// The account; `None` for the operator itself.
        account: Option<Account>,
        /// What the request does.
        verb: Verb,
        /// The kind of the object.
        kind: Kind,
    },
}

impl Denial {
    /// Whether the operator lacks the right to impersonate.
    pub(super) const fn is_about_impersonation(&self) -> bool {
        matches!(self, Self::Impersonation { .. })
    }

    /// The missing right in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::Impersonation { account } => format!("the operator may not act as {account}"),
            Self::Right { account, verb, kind } => {
                let who =
                    account.as_ref().map_or_else(|| "the operator".to_owned(), ToString::to_string);
                format!("{who} may not {} {}.{}", verb.words(), kind.plural(), crate::api::GROUP)
            }
        }
    }

    /// How to fix it: the commands that grant the account its rights. If the operator writes as itself, the hint names its
    /// manifest. `None` for impersonation: the next reconcile asks again, and gives the reason with its commands.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let Account { namespace, name } = match self {
            Self::Impersonation { .. } => return None,
            Self::Right { account: Some(account), .. } => account,
            Self::Right { account: None, .. } => {
                return Some(
                    "with --single-tenant the operator needs the rights of deploy/single-tenant.yaml"
                        .into(),
                );
            }
        };
        let kinds: Vec<_> = Kind::ALL
            .iter()
            .map(|kind| format!("{}.{}", kind.plural(), crate::api::GROUP))
            .collect();
        Some(format!(
            "kubectl -n {namespace} create role {name} --verb=get,create,patch,delete --resource={}; \
             kubectl -n {namespace} create rolebinding {name} --role={name} --serviceaccount={namespace}:{name}",
            kinds.join(",")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(message: &str, kind: &str, account: Option<&Account>) -> Rejection {
        let status = serde_json::json!({
            "status": "Failure", "code": 403, "message": message, "reason": "Forbidden", "details": {"kind": kind},
        });
        let status = serde_json::from_value(status).expect("a status");
        let error = CallError::Refused(Box::new(status));
        Rejection::of(&error, Attempt { account, verb: Verb::Patch, kind: Kind::Agent })
    }

    #[test]
    fn g16_a_denial_says_who_what_and_how_to_allow_it() {
        let account = Account::new("team", "sync");
        let words = r#"agents.convoke.dev "a" is forbidden: User "system:serviceaccount:team:sync" cannot patch resource "agents" in API group "convoke.dev" in the namespace "team""#;
        let denial = refused(words, "agents", account.as_ref()).denial.expect("a denial");
        assert_eq!(denial.sentence(), "ServiceAccount team/sync may not patch agents.convoke.dev");
        assert_eq!(
            denial.hint().as_deref(),
            Some(
                "kubectl -n team create role sync --verb=get,create,patch,delete \
                 --resource=modelapis.convoke.dev,mcpservers.convoke.dev,agentbuilds.convoke.dev,agents.convoke.dev; \
                 kubectl -n team create rolebinding sync --role=sync --serviceaccount=team:sync"
            )
        );
        let own = refused(words, "agents", None).denial.expect("a denial");
        assert_eq!(own.sentence(), "the operator may not patch agents.convoke.dev");
        assert!(own.hint().is_some_and(|hint| hint.contains("single-tenant")));
        // The account is not asked at all if the operator may not act as it.
        let words = r#"serviceaccounts "sync" is forbidden: User "system:serviceaccount:convoke-system:convoke" cannot impersonate resource "serviceaccounts" in API group "" in the namespace "team""#;
        let acting = refused(words, "serviceaccounts", account.as_ref()).denial.expect("a denial");
        assert!(acting.is_about_impersonation());
        assert_eq!(acting.sentence(), "the operator may not act as ServiceAccount team/sync");
        // A policy's refusal is not about rights, and neither is a quota's.
        let policy = r#"agents "a" is forbidden: ValidatingAdmissionPolicy denied request: no"#;
        let quota = r#"agents "a" is forbidden: exceeded quota: most, requested: 1, used: 9"#;
        for words in [policy, quota] {
            assert_eq!(refused(words, "agents", account.as_ref()).denial, None);
        }
    }

    #[test]
    fn g16_nobody_named_is_refused_and_the_nearest_name_counts() {
        let rules = |default: Option<&str>, single_tenant| Rules {
            single_tenant,
            default_service_account: default.map(str::to_owned),
            operator: OperatorAccount::new("convoke-system"),
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
