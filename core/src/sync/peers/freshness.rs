//! After which point a poll of a peer counts for a delete.

use crate::order::Seq;
use crate::sync::commit::loaded::Loaded;

/// When the spec and the approval changed last. What a peer found before that counts for no delete.
pub struct Freshness {
    /// The generation that was seen last, and since when.
    spec: (i64, Seq),
    /// The approval that was seen last, and since when.
    approval: (Option<String>, Seq),
}

impl Freshness {
    /// Notes the current spec and approval. Returns whether the spec has changed.
    pub fn note(&mut self, generation: i64, approval: Option<&str>) -> bool {
        let changed = self.spec.0 != generation;
        if changed {
            self.spec = (generation, Seq::next());
        }
        if self.approval.0.as_deref() != approval {
            self.approval = (approval.map(str::to_owned), Seq::next());
        }
        changed
    }

    /// The point after which the poll of a peer must have begun to count for a delete of this commit: the commit was
    /// found, the spec changed (a resume is a change, too) and the delete was approved before it.
    #[must_use]
    pub fn since(&self, loaded: &Loaded) -> Seq {
        loaded.found.max(self.spec.1).max(self.approval.1)
    }

    /// Whether the approval changed after a poll that began at `polled`: that poll may have missed a commit that wants the
    /// objects again.
    #[must_use]
    pub fn is_approved_after(&self, polled: Seq) -> bool {
        self.approval.1 > polled
    }
}

impl Default for Freshness {
    fn default() -> Self {
        Self { spec: (0, Seq::next()), approval: (None, Seq::next()) }
    }
}
