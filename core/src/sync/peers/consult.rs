//! Asking the other GitSyncs of the namespace, before a delete and before a complaint, and waiting for what they say.

use crate::api::git_sync::PendingPrune;
use crate::cluster::store::Key;
use crate::sync::io::Io;
use crate::sync::order::Seq;
use crate::sync::peers::hand_over::Peers;
use crate::sync::peers::view::PeerView;
use crate::sync::plan::{Plan, brake};

/// Before a delete and before a complaint, the other GitSyncs of the namespace must have been heard. Leaves out of a
/// plan what has to wait for them; gives the names of those that are to look at their remotes.
///
/// Held deletes that are shown already, or join those that are held for this commit, ask nobody until they are approved.
pub(crate) fn consult(
    others: &PeerView<'_>,
    made: &mut Plan,
    pending: Option<&PendingPrune>,
    latch_key: &str,
) -> Vec<String> {
    let contested = made.conflicts.iter().any(|conflict| conflict.sibling.is_some());
    let shown = pending.map(|pending| pending.digest.as_str());
    let new = made.held.as_ref().is_some_and(|held| Some(held.digest.as_str()) != shown);
    let new = new && !brake::is_shown(pending, latch_key);
    if made.prune.is_empty() && made.given.is_empty() && !contested && !new {
        return Vec::new();
    }
    let asked: Vec<_> = others.unknown.iter().map(|other| other.name.clone()).collect();
    if !asked.is_empty() {
        // It may be about to give these up.
        made.conflicts.retain(|c| c.sibling.as_ref().is_none_or(|s| !asked.contains(s)));
        // It may want some of these.
        made.unheard = made.held.take_if(|_| new);
    }
    asked
}

impl Peers {
    /// Asks the GitSyncs that are to be heard before this plan to poll their remotes, and has the GitSync woken at the next poll of
    /// those for whom deletes wait.
    pub(crate) fn ask_before(&self, io: &Io, others: &PeerView<'_>, asked: &[String], made: &Plan) {
        let key_of = |name: &String| Key::new(&others.me.namespace, name);
        let mut awaited: Vec<Key> = asked.iter().map(key_of).collect();
        self.ask_to_poll(io, &awaited, others.since);
        // It may not want it any more before it has taken it.
        awaited.extend(made.given.iter().map(|(_, taker)| key_of(taker)));
        if made.held.is_some() || !asked.is_empty() {
            awaited.extend(others.mute().cloned());
        }
        self.wait_for(io, &others.me, &awaited, others.at);
    }

    /// Asks these GitSyncs of the namespace to poll their remotes at once.
    pub(crate) fn ask_to_poll(&self, io: &Io, whom: &[Key], since: Seq) {
        let news = whom.iter().filter(|other| self.ask(other, since, io.now()));
        io.wake(news.cloned().collect());
    }

    /// Wakes the GitSync when one of these has polled: at once, if one has after `asked`, when it was looked up what is known of it.
    pub(crate) fn wait_for(&self, io: &Io, key: &Key, whom: &[Key], asked: Seq) {
        let mut news = false;
        for other in whom {
            news |= self.wait(other, key, asked);
        }
        if news {
            io.wake(vec![key.clone()]);
        }
    }
}

#[cfg(test)]
#[path = "tests/consult.rs"]
mod tests;
