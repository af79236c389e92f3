//! The end of a GitSync: what becomes of its objects when it is deleted, and the finalizer that holds it until then.
//!
//! The finalizer is there only while the end must delete something: `deletionPolicy: Delete`, not suspended, and there
//! are objects or there are about to be. Nothing that is gone holds an end up: neither the namespace nor the
//! ServiceAccount. A right that is missing does; then `deletionPolicy: Orphan` lets the objects stay.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::git_sync::DeletionPolicy;
use crate::api::{GitSync, ObjectId, keys};
use crate::cluster::live::Managed;
use crate::cluster::store::{Entry, Key};
use crate::next::{Next, delay};
use crate::sync::apply::impersonation::Refusal;
use crate::sync::apply::problems::{Refused, write_problems};
use crate::sync::apply::terminating::{finalizers, keepers};
use crate::sync::apply::{LONGEST, Outcome, Pruned, Writer};
use crate::sync::commit::desired::{DesiredSet, SyncRef};
use crate::sync::io::Ended;
use crate::sync::io::EngineError;
use crate::sync::io::Io;
use crate::sync::io::effect::{Call, Effect, Event, EventType, Reply};
use crate::sync::live_namespace::{LiveSet, Namespace, is_ours, is_paused};
use crate::sync::order::Seq;
use crate::sync::peers::hand_over::GIVE_UP;
use crate::sync::plan::work_index::WorkIndex;
use crate::sync::plan::{Others, Plan, Settled, Victim};
use crate::sync::reasons::EngineReason;
use crate::sync::reasons::unready;
use crate::sync::reconcile::engine::Engine;
use crate::sync::reconcile::state::SyncState;
use crate::sync::status::Report;
use crate::sync::status::events::of_sync;
use crate::sync::subject::Subject;

/// Objects that are deleted before the status is told again.
const BATCH: usize = 200;
/// How long the watch may take to show what was deleted.
const ECHO: Duration = Duration::from_millis(100);
/// How long objects that finalizers of others keep are waited for, once nothing else is left.
const MOST_WAIT_FOR_FINALIZERS: Duration = Duration::from_secs(120);
/// How often the finalizer is tried again when the GitSync changed meanwhile.
const TRIES: usize = 5;

/// Whether the end of this GitSync takes its objects along.
fn takes_along(sync: &GitSync) -> bool {
    sync.spec.deletion_policy == DeletionPolicy::Delete && !sync.spec.suspend
}

fn is_held(entry: &Entry<Managed<GitSync>>) -> bool {
    entry.value.facts.finalizers.iter().any(|name| name == keys::FINALIZER)
}

/// The live objects of a GitSync that ends.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parting {
    /// To be deleted, in reverse apply order.
    victims: Vec<Victim>,
    /// Wanted by another GitSync of the namespace: handed over first.
    given: Vec<(ObjectId, String)>,
    /// Protected by `convoke.dev/prune: disabled`.
    kept: Vec<ObjectId>,
    /// Being deleted already, and the finalizers that keep it.
    ending: Vec<(ObjectId, String)>,
}

impl Parting {
    /// Only what carries the mark of exactly this GitSync, naming its bearer.
    fn of(live: &LiveSet, sync: &SyncRef, others: &dyn Others) -> Self {
        let mut parting = Self::default();
        for (id, object) in live {
            if !is_ours(object, id, sync) {
                continue;
            }
            if object.facts().deleting {
                parting.ending.push((id.clone(), finalizers(object)));
                continue;
            }
            let protected = object.facts().annotations.get(keys::PRUNE) == Some(keys::DISABLED);
            if protected || is_paused(object) {
                parting.kept.push(id.clone());
            } else if let Some(other) = others.wanted_by(id) {
                parting.given.push((id.clone(), other));
            } else {
                let (uid, version) = (object.uid().to_owned(), object.version());
                parting.victims.push(Victim { id: id.clone(), uid, version });
            }
        }
        parting.victims.sort_by(|a, b| b.id.cmp(&a.id));
        parting
    }
}

/// How much longer what is being deleted is waited for. (pure)
fn patience(ending: usize, waited: Duration) -> Option<Duration> {
    let left = MOST_WAIT_FOR_FINALIZERS.saturating_sub(waited);
    (ending > 0 && !left.is_zero()).then_some(left)
}

/// How far an end has come.
enum Step {
    /// Nothing holds it any more: for people, why, and whether that is as it was meant.
    Over { good: bool, reason: &'static str, note: String },
    /// It goes on.
    Later(Next),
}

impl Engine {
    /// Before anything else is done for a GitSync: the finalizer is where it belongs as far as that is known without
    /// looking at the remote.
    pub(crate) async fn prepare_end(&self, subject: &Subject<'_>) -> Result<(), EngineError> {
        let held = is_held(subject.entry);
        if !takes_along(subject.sync) {
            return if held {
                self.hold(subject.io, subject.key, &subject.entry.uid, false).await
            } else {
                Ok(())
            };
        }
        let (sync, space) = (subject.reference(), subject.live(&self.stores));
        let ours = |id: &ObjectId| space.get(id).is_some_and(|live| is_ours(&live, id, &sync));
        if !held && space.ids().iter().any(ours) {
            return self.hold(subject.io, subject.key, &subject.entry.uid, true).await;
        }
        Ok(())
    }

    /// Before the writes of a plan: no object is made that the end would not find.
    pub(crate) async fn prepare_end_of(
        &self,
        subject: &Subject<'_>,
        plan: &Plan,
        blocked: usize,
    ) -> Result<(), EngineError> {
        let writes = !plan.create.is_empty() || !plan.update.is_empty();
        // What the server refused is tried again: the finalizer would come and go with each try.
        if blocked > 0 && !writes {
            return Ok(());
        }
        if !takes_along(subject.sync) || (!writes && plan.marked > 0) {
            return Ok(());
        }
        self.hold(subject.io, subject.key, &subject.entry.uid, writes).await
    }

    /// Sets or takes away the finalizer of exactly this GitSync, and leaves those of others alone.
    async fn hold(&self, io: &Io, key: &Key, uid: &str, hold: bool) -> Result<(), EngineError> {
        let store = &self.stores.git_syncs;
        let Some(mut newest) = store.get(key).filter(|newest| newest.uid == uid) else {
            return Ok(());
        };
        for attempt in 1..=TRIES {
            let mut finalizers = newest.value.facts.finalizers.to_vec();
            if finalizers.iter().any(|name| name == keys::FINALIZER) == hold {
                return Ok(());
            }
            finalizers.retain(|name| name != keys::FINALIZER);
            if hold {
                finalizers.push(keys::FINALIZER.into());
            }
            let (name, version) = (key.name.clone(), newest.version);
            let reply = match io.ask(None, Call::Finalizers { name, version, finalizers }).await {
                Err(error) if error.is_conflict() && attempt < TRIES => {
                    io.ask(None, Call::GetSync { name: key.name.clone() }).await
                }
                other => other.inspect(|_| tracing::debug!(object = %key, hold, "finalizer")),
            };
            let reply = match reply {
                Err(error) if error.is_gone() => None,
                Ok(Reply::Object(object)) if object.metadata.uid.as_deref() == Some(uid) => {
                    Some(object)
                }
                Ok(_) => None,
                Err(error) => return Err(EngineError::Finalizer(error)),
            };
            let Some(reply) = reply else {
                store.deleted(key, uid);
                return Ok(());
            };
            let (_, seen) = Managed::<GitSync>::answered(*reply);
            let facts = &seen.value.facts;
            if facts.deleting && facts.finalizers.is_empty() {
                // That was the last one: the server has deleted it with this write.
                store.deleted(key, uid);
                return Ok(());
            }
            newest = store.wrote(key.clone(), seen);
        }
        Ok(())
    }

    /// A GitSync that somebody has deleted.
    pub(crate) async fn end(&self, io: &Io, key: &Key, entry: &Entry<Managed<GitSync>>) -> Ended {
        if !is_held(entry) {
            self.forget(io, key);
            return Ok(Next::Forget);
        }
        let state = self.state(key, &entry.uid);
        let mut state = state.lock().await;
        if state.uid != entry.uid {
            drop(state);
            self.forget(io, key);
            return Ok(Next::After(Duration::ZERO));
        }
        let sync = entry.value.object();
        let step = if let Some(sync) = &sync {
            let generation = sync.metadata.generation.unwrap_or(0);
            let subject = Subject { io, key, entry, sync, generation, own: None };
            self.part(&mut state, &subject).await?
        } else {
            // Nobody knows what it wants, so nothing is deleted.
            let error = entry.value.parse_error().unwrap_or_default();
            let note = format!("it does not parse, so its objects stay: {error}");
            Step::Over { good: false, reason: "Orphaned", note }
        };
        drop(state);
        let (good, reason, note) = match step {
            Step::Later(next) => return Ok(next),
            Step::Over { good, reason, note } => (good, reason, note),
        };
        tracing::info!(object = %key, reason, note, "the end of a GitSync");
        let (about, reason) = (of_sync(key, &entry.uid), reason.to_owned());
        let type_ = EventType::normal_if(good);
        io.tell(Effect::Event(Box::new(Event { about, type_, reason, note })));
        self.hold(io, key, &entry.uid, false).await?;
        self.forget(io, key);
        Ok(Next::Forget)
    }

    /// Deletes what the GitSync leaves, some objects at a time.
    async fn part(
        &self,
        state: &mut SyncState,
        subject: &Subject<'_>,
    ) -> Result<Step, EngineError> {
        let Subject { io, key, entry, sync, .. } = subject;
        let over = |good, reason, note| Ok(Step::Over { good, reason, note });
        if !takes_along(sync) {
            let why =
                if sync.spec.suspend { "it is suspended" } else { "deletionPolicy is Orphan" };
            return over(true, "Orphaned", format!("its objects stay: {why}"));
        }
        match io.ask(None, Call::FindNamespace).await {
            Ok(Reply::Found { deleting: false }) => {}
            Err(error) if !error.is_gone() => {
                tracing::debug!(object = %key, %error, "cannot look at the namespace");
            }
            Ok(_) | Err(_) => {
                let note = "the namespace is being deleted, and takes the objects along";
                return over(true, "Released", note.into());
            }
        }

        let reference = subject.reference();
        let since = *state.end.ended.get_or_insert_with(Seq::next);
        // Asked first: whoever tells something beside this is news, whether or not the view has it.
        let told = self.news();
        let others = self.peers.view(key, since, io.now(), &self.stores.git_syncs);
        let live = subject.live(&self.stores).all();
        let Parting { victims, given, kept, ending } = Parting::of(&live, &reference, &others);
        if victims.is_empty() && given.is_empty() {
            let since = *state.end.parting.get_or_insert_with(|| io.now());
            let waited = io.now().saturating_duration_since(since);
            if let Some(left) = patience(ending.len(), waited) {
                let what = format!("being deleted: {}", keepers(&ending));
                let words = (EngineReason::Deleting, what.as_str(), "waiting for their end");
                return self.say(state, subject, &live, words, &[], left).await;
            }
            if !ending.is_empty() {
                let note = format!(
                    "{} object(s) were deleted; {}, and are not waited for any longer",
                    state.end.parted,
                    keepers(&ending)
                );
                return over(false, "Deleted", note);
            }
            let note = match kept.as_slice() {
                [] => format!("{} object(s) were deleted", state.end.parted),
                [first, ..] => format!(
                    "{} object(s) were deleted; {} stay, because they say {}: disabled; first: {first}",
                    state.end.parted,
                    kept.len(),
                    keys::PRUNE
                ),
            };
            return over(true, "Deleted", note);
        }
        state.end.parting = None;
        let count = victims.len() + given.len();

        let account = match self.rules.writer(&mut state.plans.account, subject, false).await {
            Ok(account) => account,
            Err(Refusal { reason: EngineReason::ServiceAccountNotFound, .. }) => {
                let note = format!("its ServiceAccount is gone, so {count} object(s) stay");
                return over(false, "Orphaned", note);
            }
            Err(Refusal { reason, message, .. }) => {
                let what = format!("{count} object(s) cannot be deleted");
                let words = (reason, what.as_str(), message.as_str());
                return self.say(state, subject, &live, words, &[], subject.retry_after()).await;
            }
        };
        // As before any delete: nobody else of this namespace may want it.
        self.peers.ask_to_poll(io, &others.unknown, since);
        let awaited: Vec<Key> = others.unknown.iter().chain(others.mute()).cloned().collect();
        self.peers.wait_for(io, key, &awaited, others.at);
        let asked: Vec<_> = others.unknown.iter().map(|other| &*other.name).collect();
        let failing = self.stores.failing().join(", ");
        let failing =
            (!failing.is_empty()).then(|| format!("waiting until the API server shows {failing}"));
        let waits = match asked.as_slice() {
            [] => others.unread().or(failing),
            names => {
                Some(format!("waiting until GitSync {} has looked at its remote", names.join(", ")))
            }
        };
        if let Some(waits) = waits {
            let what = format!("{count} object(s) are to be deleted");
            let words = (EngineReason::Deleting, what.as_str(), waits.as_str());
            let wait = subject.retry_after().min(GIVE_UP);
            return self.say(state, subject, &live, words, &[], wait).await;
        }
        self.peers.leave_to(io, key, &given, None);

        let what = match given.first() {
            None => format!("{count} object(s) are left to delete"),
            Some((id, taker)) => format!(
                "{} object(s) are left to delete, {} are handed over; first: {id} to GitSync {taker}",
                victims.len(),
                given.len()
            ),
        };
        self.say(state, subject, &live, (EngineReason::Deleting, &what, ""), &[], Duration::ZERO)
            .await?;

        let current = || {
            let newest = self.stores.git_syncs.get(key);
            newest.is_some_and(|newest| {
                newest.uid == entry.uid && newest.value.facts.same_input(&entry.value.facts)
            })
        };
        let absent = || self.news() == told && self.stores.failing().is_empty();
        let writer = Writer {
            io,
            account: account.as_ref(),
            stores: &self.stores,
            sync: &reference,
            commit: "",
            atomic: false,
            go_on: &current,
            absent: &absent,
            // It takes nothing.
            given: &|_, _| false,
            until: io.now() + LONGEST,
        };
        let mut undeleted = BTreeMap::new();
        for victim in victims.iter().take(BATCH) {
            match writer.prune(victim).await {
                Ok(Pruned::Gone | Pruned::Ending) => state.end.parted += 1,
                Ok(Pruned::Taken) => {}
                // How far it is is told first.
                Ok(Pruned::Late) => break,
                // Somebody who suspends it or changes the policy now is obeyed now.
                Ok(Pruned::Stopped) => return Ok(Step::Later(Next::After(Duration::ZERO))),
                Err(words) => {
                    undeleted.insert(victim.id.clone(), words);
                }
            }
        }
        if undeleted.is_empty() {
            state.plans.attempts = 0;
            // What is handed over comes back by the watch.
            // The watch shows in a moment what is on its way.
            let wait = if victims.is_empty() { subject.retry_after() } else { ECHO };
            return Ok(Step::Later(Next::After(wait)));
        }
        let denied = undeleted.values().any(|rejection| rejection.denial.is_some());
        let reason = if denied { EngineReason::Forbidden } else { EngineReason::Deleting };
        let what = format!("{} object(s) could not be deleted", undeleted.len());
        let outcome = Outcome { undeleted, ..Outcome::default() };
        let problems = write_problems(
            key,
            &DesiredSet::new(),
            &Plan::default(),
            &outcome,
            &Refused::new(),
            &[],
        );
        state.plans.attempts = state.plans.attempts.saturating_add(1);
        let wait = io.jitter(delay(state.plans.attempts)).min(subject.retry_after());
        self.say(state, subject, &live, (reason, &what, "trying again"), &problems, wait).await
    }

    /// Tells how the end goes on, and when.
    async fn say(
        &self,
        state: &SyncState,
        subject: &Subject<'_>,
        live: &LiveSet,
        (reason, what, more): (EngineReason, &str, &str),
        problems: &[crate::api::git_sync::Problem],
        wait: Duration,
    ) -> Result<Step, EngineError> {
        let mut message = format!(
            "{what}; to let go of them: kubectl -n {} patch gitsync {} --type=merge -p '{{\"spec\":{{\"deletionPolicy\":\"Orphan\"}}}}'",
            subject.key.namespace, subject.key.name
        );
        if !more.is_empty() {
            message = format!("{message}; {more}");
        }
        let mut verdict = unready(reason, &message, false);
        verdict.reconciling = true;
        let nothing = Plan::default();
        let (sync, none) = (subject.reference(), (DesiredSet::new(), Settled::new()));
        let board = WorkIndex::new(&sync, &none.0, live, &none.1);
        let report = Report {
            plan: Some(&nothing),
            problems: Some(problems),
            counts: Some(board.counts()),
            failed: problems.len(),
            ..Report::blank(subject, verdict, &state.remote)
        };
        self.status().report(subject, report).await?;
        Ok(Step::Later(Next::After(wait)))
    }
}

#[cfg(test)]
#[path = "tests/deletion.rs"]
mod tests;
