//! Planning and writing: from what was read and what there is to what was done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::apply::{Failure, LONGEST, Outcome, Writer, apply};
use super::board::{Board, Count, Namespace};
use super::desired::{Change, SyncRef, changes};
use super::engine::{Engine, EngineError, Subject};
use super::plan::{Inputs, Others, Plan, plan};
use super::problems::{leave_refused, write_problems};
use super::references::References;
use super::rights::retry_after;
use super::siblings;
use super::source::{Loaded, millis};
use super::space::Space;
use super::state::{State, View};
use super::status::Carried;
use crate::api::git_sync::{ApprovedPrune, FailurePolicy, GitSyncStatus, Problem, Stages};
use crate::api::{Kind, ObjectId, keys};
use crate::cluster::store::Key;
use crate::controllers::turns::Turn;
use crate::definition::diagnostic;

/// What a plan became.
pub(super) struct Carry {
    pub plan: Plan,
    pub outcome: Outcome,
    /// Writes that the server refused before and that were not sent again.
    pub blocked: usize,
    /// Deletes of the plan that were not begun.
    pub postponed: usize,
    pub carried: Carried,
    pub approved: Option<ApprovedPrune>,
    pub problems: Vec<Problem>,
    pub stages: Stages,
    /// Objects with our mark after the writes.
    pub counts: BTreeMap<Kind, Count>,
    /// Controllers wait until this is dropped.
    pub turn: Option<Turn>,
}

impl Engine {
    /// Plans and writes.
    pub(super) async fn carry_out(
        &self,
        state: &mut State,
        subject: &Subject<'_>,
        loaded: &Arc<Loaded>,
    ) -> Result<Carry, EngineError> {
        let Subject { key, entry, sync, generation } = subject;
        let plan_start = Instant::now();
        let reference = subject.reference();
        let live = self.space(&key.namespace);
        // A plan for this commit was carried out before: what is missing now was there, or could not be made.
        let again = state.view.as_ref().is_some_and(|view| Arc::ptr_eq(&view.loaded, loaded));
        let mut view = self.look_around(state, &reference, loaded, &live);
        // While the newest commit waits for others, what is wrong with it is said already.
        let said = state.loaded.as_ref().filter(|_| state.waiting).unwrap_or(loaded);
        let mut problems = said.catalog.problems.clone();
        problems.extend(view.references.problems().cloned());
        let others = self.siblings.view(key, loaded.found, &self.stores.git_syncs);
        // A changed spec ends an approval: `maxDeletions: 0` must stop what is under way.
        let input_key = format!("{} {generation}", loaded.input_key);
        let approved = subject.status().and_then(|status| status.approved_prune.as_ref());
        let mut made = plan(&Inputs {
            sync: &reference,
            input_key: &input_key,
            desired: &loaded.desired,
            live: &live,
            board: &view.board,
            has_errors: loaded.catalog.has_errors(),
            broken: &loaded.catalog.broken,
            broken_paths: &loaded.catalog.broken_paths,
            paths: &loaded.catalog.paths,
            last_paths: &loaded.last_paths,
            prune: &sync.spec.prune,
            drift: sync.spec.drift,
            failure_policy: sync.spec.failure_policy,
            approval: subject.annotation(keys::APPROVE_PRUNE),
            approved,
            prune_base: subject.status().and_then(GitSyncStatus::prune_base),
            others: &others,
            settled: &state.settled,
        });
        if state.recalled.as_ref().is_some_and(|recalled| Arc::ptr_eq(recalled, loaded)) {
            // It was applied once, perhaps for another spec.
            made.undo_only();
        }
        state.try_denied_again(retry_after(subject));
        // What the server refused is not sent again until its content changes or somebody asks.
        let blocked = leave_refused(&mut made, &loaded.desired, &mut state.refused);
        let atomic = sync.spec.failure_policy == FailurePolicy::Atomic;
        if atomic && blocked > 0 {
            made.wait();
        }
        let fought = state.fights.hold(&mut made, &loaded.desired, Instant::now());
        let shown = subject.status().and_then(|status| status.pending_prune.as_ref());
        let consulted = consult(&others, &mut made, shown.map(|shown| shown.digest.as_str()));
        if consulted.is_some() {
            self.ask(key, &others);
        }
        let mut carried = consulted.unwrap_or_default();
        // The remote has not been asked since the spec was changed: what was found before may be long out of date.
        carried.unanswered = state.generation != *generation;
        // While the newest commit cannot be read, an older one proves no absence.
        let unproven = blocked > 0
            || !fought.is_empty()
            || carried.unanswered
            || state.source_error.is_some()
            || state.waiting
            || !carried.asked.is_empty()
            || carried.unknown.is_some();
        let postponed = if unproven { std::mem::take(&mut made.prune).len() } else { 0 };
        // An older commit gives nothing away either.
        let offered = offered(state, loaded, &others);
        let gives = if unproven { offered } else { made.given.clone() };
        for taker in self.siblings.give(key, &gives) {
            self.queue.add(Key::new(&key.namespace, taker));
        }
        let mut stages = Stages { plan_ms: millis(plan_start), ..state.stages.clone() };

        // Remember an approval before the first delete: after a crash the rest is still approved.
        if made.released.is_some() && approved != made.released.as_ref() {
            let released = made.released.clone();
            self.write_status(subject, |old| {
                let mut status = old.cloned().unwrap_or_default();
                status.approved_prune = released;
                status
            })
            .await?;
        }

        let apply_start = Instant::now();
        let (newer, told) = (state.has_news(), self.siblings.news(&key.namespace));
        let current = || {
            // A newer commit, of this GitSync or of another one, may want what this plan deletes.
            if newer() || self.siblings.news(&key.namespace) != told {
                return false;
            }
            let newest = self.stores.git_syncs.get(key);
            newest.is_some_and(|newest| {
                newest.uid == entry.uid && newest.value.facts.same_input(&entry.value.facts)
            })
        };
        let writer = |client| Writer {
            client,
            stores: &self.stores,
            sync: &reference,
            commit: &loaded.revision.commit,
            atomic,
            go_on: &current,
            until: tokio::time::Instant::now() + LONGEST,
        };
        let client = self.writer(state, subject, made.is_settled()).await;
        if client.is_ok() {
            self.prepare_end_of(subject, &made, blocked).await?;
        }
        let turn = (!made.is_settled()).then(|| self.turns.sync());
        let outcome = match client {
            Ok(Some(client)) if !made.is_settled() => {
                let slow = Self::slow_report(state, subject, loaded, &made);
                let State { settled, pieces, .. } = state;
                let writer = writer(&client);
                let work = apply(&writer, &loaded.desired, &made, settled, pieces);
                self.telling(subject, slow, work).await
            }
            Ok(_) => Outcome::default(),
            Err(refusal) => {
                carried.refusal = Some(refusal);
                Outcome::default()
            }
        };
        stages.apply_ms = millis(apply_start);
        // A reply that shows nothing new touches nothing, but teaches what is settled.
        let own = made.create.iter().chain(made.update.iter().map(|update| &update.id));
        // What changed meanwhile counts now, and is looked at again by the next plan, which knows what that means.
        for id in own.chain(&self.touched.peek(key)) {
            view.board.look(id, &reference, &loaded.desired, &live, &state.settled);
        }
        let counts = view.board.counts().clone();
        state.view = Some(view);
        for (id, drift) in &outcome.drifts {
            if let Some(want) = loaded.desired.get(id) {
                state.fights.reverted(id, &want.applied, drift.to_string(), Instant::now());
            }
        }
        for id in made.create.iter().filter(|id| again && live.get(id).is_some()) {
            if let Some(want) = loaded.desired.get(id) {
                let who = "deleted by somebody".to_owned();
                state.fights.reverted(id, &want.applied, who, Instant::now());
            }
        }
        for (id, failure) in &outcome.failures {
            match (failure, loaded.desired.get(id)) {
                (Failure::Refused(message), Some(want)) => {
                    state.refused.insert(id.clone(), (want.applied.clone(), message.clone()));
                }
                _ => carried.transient += 1,
            }
        }
        state.try_denied_again(retry_after(subject));
        carried.undeleted = outcome.undeleted.len();
        carried.left = outcome.left;
        carried.wait = fought.iter().map(|fought| fought.wait).min();
        let said_so = !carried.asked.is_empty() || carried.unknown.is_some();
        if !said_so && !carried.unanswered && fought.is_empty() {
            carried.undeleted += postponed;
        }
        problems.extend(write_problems(
            &key.namespace,
            &loaded.desired,
            &made,
            &outcome,
            &state.refused,
            &fought,
        ));
        diagnostic::sort(&mut problems);
        let approved = made.released.clone();
        Ok(Carry {
            plan: made,
            outcome,
            blocked,
            postponed,
            carried,
            approved,
            problems,
            stages,
            counts,
            turn,
        })
    }

    /// Brings the view up to date: with what changed in the cluster, and with what changed between two commits.
    fn look_around(
        &self,
        state: &mut State,
        sync: &SyncRef,
        loaded: &Arc<Loaded>,
        live: &Space<'_>,
    ) -> View {
        let key = Key::new(&*sync.namespace, &*sync.name);
        let exists = |id: &ObjectId| live.get(id).is_some();
        let Some(mut view) = state.view.take() else {
            self.touched.follow(&key);
            let board = Board::new(sync, &loaded.desired, live, &state.settled);
            let mut references = References::default();
            references.check_all(&loaded.catalog, &exists);
            return View { board, references, loaded: loaded.clone() };
        };
        let touched = self.touched.take(&key);
        let desired = &loaded.desired;
        let before = std::mem::replace(&mut view.loaded, loaded.clone());
        let differing = changes(&before.desired, desired);
        for id in touched.iter().chain(differing.iter().map(|(id, _)| id)) {
            view.board.look(id, sync, desired, live, &state.settled);
        }
        let commits = (&before.catalog, &loaded.catalog);
        view.references.update(commits, &differing, touched.iter(), &exists);
        view
    }

    /// Asks the GitSyncs of the namespace that have not been heard.
    fn ask(&self, key: &Key, others: &siblings::View<'_>) {
        for other in &others.unknown {
            self.siblings.wait(other, key, true);
            self.queue.add(other.clone());
        }
        for other in &others.failed {
            self.siblings.wait(other, key, false);
        }
    }
}

/// Before a delete and before a complaint, the other GitSyncs of the namespace must have been heard. Leaves out of a
/// plan what has to wait for them; `None` when nothing has to.
///
/// Held deletes that are `shown` already, by their digest, stay so: that the others are asked once more, after a start
/// for example, is no news.
pub(super) fn consult(
    others: &siblings::View<'_>,
    made: &mut Plan,
    shown: Option<&str>,
) -> Option<Carried> {
    let deletes = made.prune.len() + made.held.as_ref().map_or(0, |held| held.victims.len());
    let contested = made.conflicts.iter().any(|conflict| conflict.sibling.is_some());
    if deletes == 0 && made.given.is_empty() && !contested {
        return None;
    }
    let mut carried = Carried {
        asked: others.unknown.iter().map(|other| other.name.clone()).collect(),
        ..Carried::default()
    };
    if !carried.asked.is_empty() {
        // It may be about to give these up.
        made.conflicts.retain(|c| c.sibling.as_ref().is_none_or(|s| !carried.asked.contains(s)));
    } else if deletes > 0 && !others.failed.is_empty() {
        let names: Vec<_> = others.failed.iter().map(|other| other.name.as_str()).collect();
        carried.unknown = Some((deletes, names.join(", ")));
    } else {
        return Some(carried);
    }
    made.held.take_if(|held| Some(held.digest.as_str()) != shown);
    let open = !made.prune.is_empty() || !made.given.is_empty() || contested;
    carried.told = made.held.is_some() && !open;
    Some(carried)
}

/// While the newest commit waits for others: what it gives up and one of them wants. It may be just that for which
/// the other one is not Ready.
fn offered(state: &State, loaded: &Loaded, others: &siblings::View<'_>) -> Vec<(ObjectId, String)> {
    let newest = state.loaded.as_ref().filter(|newest| {
        state.waiting && state.source_error.is_none() && !newest.catalog.has_errors()
    });
    let Some(newest) = newest else { return Vec::new() };
    let gone = changes(&loaded.desired, &newest.desired).into_iter();
    gone.filter(|(_, change)| *change == Change::Gone)
        .filter_map(|(id, _)| others.wanted_by(&id).map(|other| (id, other)))
        .collect()
}

#[cfg(test)]
mod tests {
    use kube::core::DeserializeGuard;
    use serde_json::json;

    use super::super::plan::{Conflict, Held, Victim};
    use super::super::siblings::{Siblings, Told};
    use super::*;
    use crate::api::GitSync;
    use crate::cluster::live::Managed;
    use crate::cluster::reflector;
    use crate::cluster::store::Store;

    /// What becomes of a plan with these held and released deletes beside the GitSync `other`, which has `told` this.
    fn consulted(told: Option<bool>, made: &mut Plan, shown: Option<&str>) -> Carried {
        let store = Store::<Managed<GitSync>>::new("GitSync");
        for name in ["main", "other"] {
            let object = json!({
                "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
                "metadata": {"name": name, "namespace": "team", "uid": name, "generation": 1,
                    "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "1"},
                "spec": {"url": "https://git.example"},
            });
            let object = serde_json::from_value(object).expect("a GitSync");
            let (key, entry) = reflector::entry::<Managed<GitSync>>(DeserializeGuard(Ok(object)));
            store.applied(key, entry);
        }
        let (siblings, found) = (Siblings::default(), Instant::now());
        if let Some(failed) = told {
            let told =
                Told { uid: "other".into(), generation: 1, polled: found, loaded: None, failed };
            let _nobody = siblings.tell(&Key::new("team", "other"), told);
        }
        let others = siblings.view(&Key::new("team", "main"), found, &store);
        consult(&others, made, shown).expect("something to ask about")
    }

    fn victim(name: &str) -> Victim {
        Victim { id: ObjectId::new(Kind::Agent, name), uid: "u".into(), version: 1 }
    }

    fn holding() -> Plan {
        let held =
            Held { digest: "d1".into(), reason: "too many".into(), victims: vec![victim("a")] };
        Plan { held: Some(held), ..Plan::default() }
    }

    #[test]
    fn g12_what_is_held_and_shown_stays_shown_while_another_sync_is_asked() {
        for told in [None, Some(true)] {
            let mut made = holding();
            let carried = consulted(told, &mut made, Some("d1"));
            assert_eq!((made, carried.told), (holding(), true));
            let mut made = holding();
            let carried = consulted(told, &mut made, Some("d0"));
            assert_eq!((made.held, carried.told), (None, false), "the other one may want some");
            let mut made = holding();
            let carried = consulted(told, &mut made, None);
            assert_eq!((made.held, carried.told), (None, false));
        }
        let mut made = holding();
        let carried = consulted(Some(false), &mut made, None);
        assert_eq!((made, carried), (holding(), Carried::default()));
    }

    #[test]
    fn g22_what_else_is_undecided_is_told_beside_what_is_held() {
        let id = ObjectId::new(Kind::Agent, "b");
        let conflict = |sibling: Option<&str>| Conflict {
            id: id.clone(),
            owner: "somebody".into(),
            sibling: sibling.map(str::to_owned),
        };
        let released = Plan { prune: vec![victim("b")], ..holding() };
        let given = Plan { given: vec![(id.clone(), "other".into())], ..holding() };
        let contested = Plan { conflicts: vec![conflict(Some("other"))], ..holding() };
        for mut made in [released, given, contested] {
            let carried = consulted(None, &mut made, Some("d1"));
            assert_eq!((made.held, carried.told), (holding().held, false));
            assert_eq!((made.conflicts, carried.asked), (vec![], vec!["other".to_owned()]));
        }
        // What is nobody's of this namespace is a conflict whatever the others want.
        let mut made = Plan { conflicts: vec![conflict(None)], ..holding() };
        assert!(consulted(None, &mut made, Some("d1")).told);
        assert_eq!(made.conflicts.len(), 1);
    }
}
