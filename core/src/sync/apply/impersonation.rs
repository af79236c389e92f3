//! With whose rights a GitSync writes, and what is said when there are none or when they do not suffice.
//!
//! Statuses, events and the finalizer are the operator's own affair; this is about the objects that come from Git.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use regex::Regex;

use crate::api::Kind;
use crate::cluster::account::Account;
use crate::cluster::call_error::CallError;
use crate::sync::apply::memory::PlanMemory;
use crate::sync::io::Io;
use crate::sync::io::effect::{Call, Reply};
use crate::sync::reasons::EngineReason;
use crate::sync::subject::Subject;

/// Why nothing at all may be written for a GitSync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The condition's reason.
    pub reason: EngineReason,
    /// For people: what is missing, and how to give it.
    pub message: String,
    /// Whether only a change of the spec (or of the operator's flags) helps.
    pub stalled: bool,
}

/// How the operator was started, as far as writes are concerned.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The operator's own rights are used for writes where no ServiceAccount is named.
    pub single_tenant: bool,
    /// ServiceAccount of each GitSync's namespace that is used where it names none.
    pub default_service_account: Option<String>,
    /// Where the operator runs, for hints.
    pub operator_namespace: String,
}

impl Rules {
    /// As whom the objects of a GitSync are written; `None` is the operator itself.
    ///
    /// # Errors
    /// When nobody is named, or somebody who cannot be: then nothing is written.
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
}

impl Rules {
    /// As whom a GitSync is written; `None` is the operator itself. Without anything to write it is only looked at once. `known` is
    /// the account that was found last, if that was no trouble.
    ///
    /// The API server does not care whether a ServiceAccount exists that somebody acts as, so it is looked at before
    /// every plan that writes: deleting it ends what is done in its name, whatever its name is still bound to.
    pub(crate) async fn writer(
        &self,
        known: &mut Option<Account>,
        subject: &Subject<'_>,
        idle: bool,
    ) -> Result<Option<Account>, Refusal> {
        let name = subject.sync.spec.service_account_name.as_deref();
        let account = self.account(&subject.key.namespace, name)?;
        let Some(account) = account else { return Ok(None) };
        let is_known = known.as_ref() == Some(&account);
        if is_known && idle {
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

    /// Asks the server as the account who that is: one clear answer before the first of many writes.
    async fn try_out(&self, io: &Io, account: &Account) -> Result<(), Refusal> {
        match io.ask(Some(account), Call::TryAccount).await {
            Err(error) if is_about_acting(&error) => Err(self.may_not_act(account, &error)),
            // Where not everybody may ask that, the writes will tell.
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

/// Whether a right is missing to act as somebody, and not for what was asked in their name.
fn is_about_acting(error: &CallError) -> bool {
    Rejection::of(error).denial.is_some_and(|denial| denial.is_about_acting())
}

impl PlanMemory {
    /// Forgets what was refused for a missing right, when it is time to try again.
    pub(crate) fn try_denied_again(&mut self, after: Duration, now: Instant) {
        if self.denied_until.is_some_and(|until| until <= now) {
            self.denied_until = None;
            self.refused.retain(|_, (_, rejection)| rejection.denial.is_none());
        }
        let denials =
            || self.refused.values().filter_map(|(_, rejection)| rejection.denial.as_ref());
        let denied = denials().next().is_some();
        if denials().any(Denial::is_about_acting) {
            self.account = None;
        }
        match (denied, self.denied_until) {
            (true, None) => self.denied_until = Some(now + after),
            (false, Some(_)) => self.denied_until = None,
            _ => {}
        }
    }
}

/// What the server said to a request that it did not carry out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Its words.
    pub words: String,
    /// The right that is missing, if that is why.
    pub denial: Option<Denial>,
}

impl Rejection {
    /// What this error says.
    #[must_use]
    pub fn of(error: &CallError) -> Self {
        let denial = error.refusal().and_then(Denial::of);
        Self { words: error.words(), denial }
    }
}

/// A right that the API server misses, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// Who was refused, like `system:serviceaccount:team:sync`.
    pub user: String,
    /// What they tried, like `patch`.
    pub verb: String,
    /// On what, like `agents.convoke.dev`.
    pub resource: String,
}

impl Denial {
    /// Reads an API server's refusal; a status says all of this in its message only.
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

    /// Whether the right to act as somebody is missing, and none of theirs.
    fn is_about_acting(&self) -> bool {
        self.verb.starts_with("impersonate")
    }

    /// `namespace:name` of a ServiceAccount, as kubectl takes it.
    fn account(&self) -> Option<String> {
        self.user.strip_prefix("system:serviceaccount:").map(str::to_owned)
    }

    /// What is missing, in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let who = self.account().map_or_else(
            || format!("user {}", self.user),
            |account| format!("ServiceAccount {}", account.replace(':', "/")),
        );
        format!("{who} may not {} {}", self.verb, self.resource)
    }

    /// The commands that give what a GitSync's account needs in its namespace; something else when the one who was
    /// refused is no account of that namespace, but the operator.
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
