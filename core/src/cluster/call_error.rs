//! The errors of requests to the API server.

use std::time::Duration;

use kube::core::Status;

/// The error of one API call.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The server answered with an error.
    #[error("{}", refusal_message(.0))]
    Refused(Box<Status>),
    /// The server could not be reached, or its answer cannot be read. The write may have happened.
    #[error("{0}")]
    Failed(String),
    /// No answer in time. The write may have happened.
    #[error("no answer from the API server within {} s", .0.as_secs())]
    Deadline(Duration),
}

/// The message of a refusal. Without one, its reason or code.
fn refusal_message(status: &Status) -> String {
    match (&*status.message, &*status.reason) {
        // The reasons of the API server are one word. A reason with spaces comes from the client, for an answer that is no
        // status.
        ("", reason) if reason.is_empty() || reason.contains(' ') => {
            format!("the API server answered with {}", status.code)
        }
        ("", reason) => reason.to_owned(),
        (message, _) => message.to_owned(),
    }
}

impl CallError {
    fn status(&self) -> Option<&Status> {
        match self {
            Self::Refused(status) => Some(status),
            Self::Failed(_) | Self::Deadline(_) => None,
        }
    }

    /// The message of the server, or what happened instead of an answer.
    #[must_use]
    pub fn words(&self) -> String {
        self.to_string()
    }

    /// The object, or its kind, was not found.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(|s| s.code == 404)
    }

    /// The object was not found, and its kind is served. When the server does not serve the kind at this moment, nothing is
    /// known about the object: then only [`Self::is_not_found`] is true.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.status().is_some_and(|s| {
            s.code == 404 && s.details.as_ref().is_some_and(|details| !details.name.is_empty())
        })
    }

    /// The object has changed, or exists already.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|s| s.code == 409)
    }

    /// The conflict is about a ResourceQuota, whose count many writes change at once.
    #[must_use]
    pub fn is_about_a_quota(&self) -> bool {
        let details = self.status().and_then(|s| s.details.as_ref());
        details.is_some_and(|details| details.kind.starts_with("resourcequota"))
    }

    /// The server refused the content. A retry with the same content would be refused as well.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.status().is_some_and(|s| {
            matches!(s.code, 400 | 422) || (s.code == 500 && s.message.contains("typed patch"))
        })
    }

    /// The object of that name has another `metadata.uid` than the one that was sent.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.status().is_some_and(|s| {
            let causes = s.details.iter().flat_map(|details| &details.causes);
            matches!(s.code, 409 | 422)
                && causes.into_iter().any(|cause| cause.field == "metadata.uid")
        })
    }

    /// An admission webhook or policy refused the content.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.status().is_some_and(|s| {
            matches!(s.code, 400..=499)
                && (s.message.contains("denied the request")
                    || s.message.contains("denied request:"))
        })
    }

    /// A webhook that has to be asked about the content did not answer, or not as it should.
    #[must_use]
    pub fn is_webhook_failure(&self) -> bool {
        self.status().is_some_and(|s| {
            s.code >= 500
                && (s.message.contains("failed calling webhook")
                    || s.message.contains("failed to call webhook"))
        })
    }

    /// The server did not accept the credentials.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        self.status().is_some_and(|s| s.code == 401)
    }

    /// The server answered with 403: a right is missing, or a policy or a quota refuses the request.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.status().is_some_and(|s| s.code == 403)
    }

    /// The account lacks the right to make the request. Only its message tells this 403 from that of a policy or a quota: the
    /// authorizer of Kubernetes says `User "x" cannot patch resource "y"`.
    #[must_use]
    pub fn is_missing_right(&self) -> bool {
        self.status().is_some_and(|s| {
            s.code == 403 && s.message.contains("\" cannot ") && s.message.contains(" resource \"")
        })
    }

    /// The missing right is about ServiceAccounts. For a request about anything else, that is the right to impersonate one.
    #[must_use]
    pub fn is_about_service_accounts(&self) -> bool {
        let details = self.status().and_then(|s| s.details.as_ref());
        self.is_missing_right()
            && details.is_some_and(|d| d.group.is_empty() && d.kind == "serviceaccounts")
    }

    /// The resource version is too old: the watch must begin with a list again.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(|s| s.code == 410)
    }
}

#[cfg(test)]
#[path = "tests/call_error.rs"]
mod tests;
