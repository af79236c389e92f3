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
    let contested = made.conflicts.iter().any(|conflict| conflict.peer.is_some());
    let shown = pending.map(|pending| pending.digest.as_str());
    let new = made.held.as_ref().is_some_and(|held| Some(held.digest.as_str()) != shown);
    let new = new && !brake::is_shown(pending, latch_key);
    if made.prune.is_empty() && made.given.is_empty() && !contested && !new {
        return Vec::new();
    }
    let asked: Vec<_> = others.unknown.iter().map(|other| other.name.clone()).collect();
    if !asked.is_empty() {
        // It may be about to give these up.
        made.conflicts.retain(|c| c.peer.as_ref().is_none_or(|s| !asked.contains(s)));
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
mod tests {
    #![allow(clippy::disallowed_methods)] // some time

    use std::sync::Arc;
    use std::time::Instant;

    use kube::core::DeserializeGuard;
    use serde_json::json;

    use super::*;
    use crate::api::{GitSync, Kind, ObjectId};
    use crate::cluster::live::{Managed, Stores};
    use crate::cluster::store::Store;
    use crate::cluster::view;
    use crate::sync::apply::impersonation::Rules;
    use crate::sync::io::drive::{io, start};
    use crate::sync::io::effect::Effect;
    use crate::sync::io::{Coroutine, Limit, Step};
    use crate::sync::order::Seq;
    use crate::sync::peers::hand_over::{Announced, Peers};
    use crate::sync::plan::{Cause, Conflict, Held, Victim};
    use crate::sync::reconcile::engine::Engine;

    /// The GitSyncs `main` and `other`.
    fn two(store: &Store<Managed<GitSync>>) {
        for name in ["main", "other"] {
            let object = json!({
                "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
                "metadata": {"name": name, "namespace": "team", "uid": name, "generation": 1,
                    "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"},
                "spec": {"url": "https://git.example"},
            });
            let object = serde_json::from_value(object).expect("a GitSync");
            let (key, entry) = view::entry::<Managed<GitSync>>(DeserializeGuard(Ok(object)));
            store.applied(key, entry);
        }
    }

    /// Who is asked about a plan with these held and released deletes beside the GitSync `other`, which has `told` this.
    fn consulted(told: Option<bool>, made: &mut Plan, shown: Option<&str>) -> Vec<String> {
        let pending = shown.map(|digest| PendingPrune {
            digest: digest.to_owned(),
            // One that joins is shown at once where something needs an approval already.
            requires_approval: digest == "d2",
            input_key: "k".into(),
            ..PendingPrune::default()
        });
        let store = Store::<Managed<GitSync>>::new("GitSync");
        two(&store);
        let peers = Peers::default();
        if let Some(failed) = told {
            let polled = Seq::next();
            let told =
                Announced { uid: "other".into(), generation: 1, polled, loaded: None, failed };
            let _nobody = peers.tell(&Key::new("team", "other"), told);
        }
        let others = peers.view(&Key::new("team", "main"), Seq::default(), Instant::now(), &store);
        assert_eq!(others.unread().is_some(), told == Some(true));
        consult(&others, made, pending.as_ref(), "k")
    }

    fn victim(name: &str) -> Victim {
        Victim { id: ObjectId::new(Kind::Agent, name), uid: "u".into(), version: 1 }
    }

    fn holding() -> Plan {
        let (digest, reason, victims) = ("d1".into(), "too many".into(), vec![victim("a")]);
        Plan {
            held: Some(Held {
                digest,
                cause: Cause::Brake,
                reason,
                command: String::new(),
                victims,
            }),
            ..Plan::default()
        }
    }

    #[test]
    fn g12_what_is_held_and_shown_stays_shown_and_asks_nobody() {
        for told in [None, Some(true), Some(false)] {
            let mut made = holding();
            for shown in ["d1", "d2"] {
                assert_eq!(consulted(told, &mut made, Some(shown)), Vec::<String>::new());
                assert_eq!(made, holding());
            }
        }
        for shown in [Some("d0"), None] {
            let mut made = holding();
            assert_eq!(consulted(None, &mut made, shown), ["other"]);
            assert_eq!(made.held, None, "the other one may want some");
            for told in [true, false] {
                let mut made = holding();
                assert_eq!(consulted(Some(told), &mut made, shown), Vec::<String>::new());
                assert_eq!(made, holding());
            }
        }
    }

    #[test]
    fn g22_what_else_is_undecided_is_asked_beside_what_is_held() {
        let id = ObjectId::new(Kind::Agent, "b");
        let conflict = |peer: Option<&str>| Conflict {
            id: id.clone(),
            owner: "somebody".into(),
            peer: peer.map(str::to_owned),
        };
        let released = Plan { prune: vec![victim("b")], ..holding() };
        let given = Plan { given: vec![(id.clone(), "other".into())], ..holding() };
        let contested = Plan { conflicts: vec![conflict(Some("other"))], ..holding() };
        for mut made in [released, given, contested] {
            assert_eq!(consulted(None, &mut made, Some("d1")), ["other"]);
            assert_eq!((made.held, made.conflicts), (holding().held, vec![]));
        }
        // What is nobody's of this namespace is a conflict whatever the others want.
        let mut made = Plan { conflicts: vec![conflict(None)], ..holding() };
        assert_eq!(consulted(None, &mut made, Some("d1")), Vec::<String>::new());
        assert_eq!(made.conflicts.len(), 1);
    }

    #[test]
    fn g22_a_look_that_ends_before_somebody_waits_for_it_is_not_missed() {
        let rules = Rules {
            single_tenant: true,
            default_service_account: None,
            operator_namespace: "convoke-system".into(),
        };
        let engine = Engine::new("team", Stores::new(), rules, Arc::default(), Arc::default());
        two(&engine.stores.git_syncs);
        let (main, other) = (Key::new("team", "main"), Key::new("team", "other"));
        let tells = |failed| {
            let polled = Seq::next();
            let told =
                Announced { uid: "other".into(), generation: 1, polled, loaded: None, failed };
            engine.peers.hear(&other, told);
        };
        for meanwhile in [false, true] {
            tells(true);
            let (start, since) = (start(), Seq::default());
            let others = engine.peers.view(&main, since, start.instant, &engine.stores.git_syncs);
            assert_eq!(others.mute().count(), 1);
            if meanwhile {
                // It can be read again, at the same commit.
                tells(false);
            }
            let (io, made) = (io(start), holding());
            let work = async { engine.peers.ask_before(&io, &others, &[], &made) };
            let step = Coroutine::new(io.clone(), work).next(start, Limit::Free);
            let woken = matches!(step, Step::Do(Effect::Wake(name, _)) if name == "main");
            assert_eq!(woken, meanwhile);
        }
    }
}
