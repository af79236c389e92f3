//! Asking peers to poll, before a delete and before a conflict is reported, and waiting for their answers.

use crate::api::git_sync::PendingPrune;
use crate::cluster::store::Key;
use crate::order::Seq;
use crate::sync::io::Io;
use crate::sync::peers::hand_over::Peers;
use crate::sync::peers::view::PeerView;
use crate::sync::plan::{Plan, brake};

/// Before a delete and before a conflict is reported, each peer must have polled. Takes out of the plan what has to wait for
/// that. Returns the names of the peers that have to poll.
///
/// Held deletes that the status shows already, or that join those held for this commit, need no poll until they are
/// approved.
pub(crate) fn consult(
    others: &PeerView<'_>,
    plan: &mut Plan,
    pending: Option<&PendingPrune>,
    latch_key: &str,
) -> Vec<String> {
    let contested = plan.conflicts.iter().any(|conflict| conflict.peer.is_some());
    let shown = pending.map(|pending| pending.digest.as_str());
    let new = plan.held.as_ref().is_some_and(|held| Some(held.digest.as_str()) != shown);
    let new = new && !brake::is_shown(pending, latch_key);
    if plan.prune.is_empty() && plan.given.is_empty() && !contested && !new {
        return Vec::new();
    }
    let asked: Vec<_> = others.not_polled.iter().map(|other| other.name.clone()).collect();
    if !asked.is_empty() {
        // A peer may be about to give these objects up.
        plan.conflicts.retain(|c| c.peer.as_ref().is_none_or(|s| !asked.contains(s)));
        // A peer may want some of these objects.
        plan.unheard = plan.held.take_if(|_| new);
    }
    asked
}

impl Peers {
    /// Asks the peers that have to poll before this plan, and has this GitSync woken at the next poll of each peer that
    /// its deletes wait for.
    pub(crate) fn ask_before(&self, io: &Io, others: &PeerView<'_>, asked: &[String], plan: &Plan) {
        let key_of = |name: &String| Key::new(&others.me.namespace, name);
        let mut awaited: Vec<Key> = asked.iter().map(key_of).collect();
        self.ask_to_poll(io, &awaited, others.since);
        // A peer that was to take an object over may not want it any more.
        awaited.extend(plan.given.iter().map(|(_, taker)| key_of(taker)));
        if plan.held.is_some() || !asked.is_empty() {
            awaited.extend(others.unreadable().cloned());
        }
        self.wait_for(io, &others.me, &awaited, others.at);
    }

    /// Asks these peers to poll at once.
    pub(crate) fn ask_to_poll(&self, io: &Io, whom: &[Key], since: Seq) {
        let asked = whom.iter().filter(|other| self.ask(other, since, io.now()));
        io.wake(asked.cloned().collect());
    }

    /// Wakes the GitSync when one of these peers has polled: at once, if one has polled since `seen`, when this GitSync
    /// looked at its peers.
    pub(crate) fn wait_for(&self, io: &Io, key: &Key, whom: &[Key], seen: Seq) {
        let mut has_polled = false;
        for other in whom {
            has_polled |= self.wait(other, key, seen);
        }
        if has_polled {
            io.wake(vec![key.clone()]);
        }
    }
}

#[cfg(test)]
#[path = "tests/consult.rs"]
mod tests;
