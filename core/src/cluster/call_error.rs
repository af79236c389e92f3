//! What went wrong with a request to the API server.

use std::time::Duration;

use kube::core::Status;

/// What went wrong with one API call.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server answered with an error.
    #[error("{}", said(.0))]
    Refused(Box<Status>),
    /// The server could not be reached, or what it sent makes no sense. The write may have happened.
    #[error("{0}")]
    Failed(String),
    /// No answer in time. The write may have happened.
    #[error("no answer from the API server within {} s", .0.as_secs())]
    Deadline(Duration),
}

/// What the server says of a refusal, or at least its reason or code.
fn said(status: &Status) -> String {
    match (&*status.message, &*status.reason) {
        // The server's reasons are one word. Another one was made up for an answer that is no status.
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

    /// What the server said, or what happened instead of an answer.
    #[must_use]
    pub fn words(&self) -> String {
        self.to_string()
    }

    /// The object (or its kind) is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status().is_some_and(|s| s.code == 404)
    }

    /// This object is not there. Unlike [`Self::is_not_found`] it is not true when the server does not know the
    /// kind at this moment: then nothing is known about the object.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.status().is_some_and(|s| {
            s.code == 404 && s.details.as_ref().is_some_and(|details| !details.name.is_empty())
        })
    }

    /// The object changed or exists already.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.status().is_some_and(|s| s.code == 409)
    }

    /// The conflict is about something else that the write needs: the count of a quota that many writes change at once.
    #[must_use]
    pub fn is_about_a_quota(&self) -> bool {
        let details = self.status().and_then(|s| s.details.as_ref());
        details.is_some_and(|details| details.kind.starts_with("resourcequota"))
    }

    /// The server refused the content: another try with the same content is of no use.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        self.status().is_some_and(|s| {
            matches!(s.code, 400 | 422) || (s.code == 500 && s.message.contains("typed patch"))
        })
    }

    /// The object of that name is another one than the `metadata.uid` that was sent.
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

    /// The server does not know who asks: it takes no credentials, or not these.
    #[must_use]
    pub fn is_unauthorized(&self) -> bool {
        self.status().is_some_and(|s| s.code == 401)
    }

    /// The operator lacks the right.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.refusal().is_some()
    }

    /// What the server says when the operator lacks the right.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.status().filter(|s| s.code == 403).map(|s| s.message.as_str())
    }

    /// What was asked for is too old: a watch must begin with a list again.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(|s| s.code == 410)
    }
}

#[cfg(test)]
#[path = "tests/call_error.rs"]
mod tests;
