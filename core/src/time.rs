//! Durations, as specs write them.

use std::time::Duration;

/// A Go duration of whole units (`1m30s`), as the schema allows it.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let duration: kube::core::Duration = text.parse().ok()?;
    (!duration.is_negative()).then(|| duration.into())
}
