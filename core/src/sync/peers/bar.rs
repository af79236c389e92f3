//! From when on what other GitSyncs say counts for a delete.

use crate::sync::commit::loaded::Loaded;
use crate::sync::order::Seq;

/// Since when the spec and the approval are what they are: what other GitSyncs found earlier counts for no delete.
pub struct Freshness {
    /// The spec that was seen last, by its generation.
    spec: (i64, Seq),
    /// The approval that was seen last.
    approval: (Option<String>, Seq),
}

impl Freshness {
    /// Takes note of the spec and of the approval that the GitSync has now. Returns whether it is another spec.
    pub fn note(&mut self, generation: i64, approval: Option<&str>) -> bool {
        let other = self.spec.0 != generation;
        if other {
            self.spec = (generation, Seq::next());
        }
        if self.approval.0.as_deref() != approval {
            self.approval = (approval.map(str::to_owned), Seq::next());
        }
        other
    }

    /// A look of another GitSync tells what it wants, as far as a delete of this commit is concerned, if it began after
    /// this: the commit was found, the spec changed (a resume is a change, too) and the delete was approved.
    #[must_use]
    pub fn since(&self, loaded: &Loaded) -> Seq {
        loaded.found.max(self.spec.1).max(self.approval.1)
    }

    /// Whether the approval was changed after a look began there: what a commit wants again by then is not seen by it.
    #[must_use]
    pub fn is_approved_after(&self, looked: Seq) -> bool {
        self.approval.1 > looked
    }
}

impl Default for Freshness {
    fn default() -> Self {
        Self { spec: (0, Seq::next()), approval: (None, Seq::next()) }
    }
}
