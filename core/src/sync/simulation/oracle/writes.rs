//! Writes: what is written is what the commit says, of what is ours to write, as whom the GitSync names.

use serde_json::Value;

use super::files::{Said, has_errors, legible, mark_of, said};
use super::{Counts, Oracle, SYNCS, Writer};
use crate::api::git_sync::{DriftPolicy, FailurePolicy};
use crate::api::{GitSync, ObjectId, keys};
use crate::cluster::store::Key;
use crate::cluster::write::Mode;
use crate::sync::io::effect::{Call, Request};
use crate::sync::properties::repository::{Tree, labels, spec};
use crate::sync::simulation::operator::Operator;
use crate::sync::simulation::server::{Name, Server, annotation, is_deleting, is_paused, text};
use crate::sync::simulation::{NAMESPACE, number};

impl Oracle {
    /// Objects are written with the rights of the ServiceAccount that the GitSync names, and only while there is one.
    pub(super) fn as_whom(&self, name: &str, request: &Request, operator: &Operator) {
        if !matches!(
            request.call,
            Call::Apply { .. }
                | Call::ReplaceSpec { .. }
                | Call::Delete { .. }
                | Call::Rehearse { .. }
        ) {
            return;
        }
        let Some(sync) = operator.sync(name) else { return };
        let named = sync.spec.service_account_name.as_deref();
        let is = request.account.as_ref().map(|account| &*account.name);
        assert_eq!(is, named, "{name} writes as somebody else");
    }

    /// Whether all that a GitSync depends on is there, or it waits for nothing.
    pub(super) fn is_released(
        &self,
        name: &str,
        found: Option<usize>,
        operator: &Operator,
    ) -> bool {
        let Some(sync) = operator.sync(name) else { return false };
        // An operator before this one has applied it already.
        let applied = sync.status.as_ref().and_then(|status| {
            let ready = status.conditions.iter().find(|c| c.type_ == "Ready")?;
            status.last_applied_revision.as_deref().filter(|_| ready.status == "True")
        });
        if applied.is_some_and(|applied| Some(Self::commit_of(applied)) == found) {
            return true;
        }
        sync.spec.depends_on.iter().all(|other| {
            let Some(entry) = operator.entry(&other.name) else { return false };
            let Some(it) = entry.value.object() else { return false };
            let Some(status) = &it.status else { return false };
            let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
            let good = ready.is_some_and(|ready| {
                // What has been found of it is applied, and all that is missing is that others take what it leaves to them.
                let tried = status.last_attempted_revision.as_deref().map(Self::commit_of);
                let found = self.looked.get(&other.name).and_then(|looked| looked.found);
                let hands_over = ready.reason == "HandingOver"
                    && tried.is_some_and(|tried| found.is_some_and(|(head, _)| head == tried));
                (ready.status == "True" || hands_over)
                    && ready.observed_generation == it.metadata.generation
            });
            good && !it.spec.suspend && !entry.value.facts.deleting
        })
    }

    /// What is applied is what the newest commit says, or what an earlier one said as far as that may still be what is meant.
    pub(super) fn applies(
        &mut self,
        name: &str,
        (id, manifest): (&ObjectId, &Value),
        operator: &Operator,
        (server, trees): (&Server, &[Tree]),
        counts: &mut Counts,
    ) {
        let Some(sync) = operator.sync(name) else {
            panic!("{name} is not there, or not legible, and writes {id}")
        };
        assert!(!sync.spec.suspend, "{name} is suspended and writes {id}");
        assert!(sync.metadata.deletion_timestamp.is_none(), "{name} ends and writes {id}");
        let folder = &sync.spec.path;
        let found = self.looked.get(name).and_then(|looked| looked.found).map(|(head, _)| head);
        let applied = manifest["metadata"]["annotations"].get(keys::APPLIED);
        let applied = applied.and_then(Value::as_str).unwrap_or_default();
        let live = server.get(&Name::Object(id.clone()));
        let mark = mark_of(sync.metadata.uid.as_deref().unwrap_or_default(), name, id);
        let ours = live.is_some_and(|live| annotation(live, keys::OWNER) == Some(&*mark));
        let tells = live.is_some_and(|live| annotation(live, keys::APPLIED) == Some(applied));
        // It was applied so before, by this operator or as far as one can see.
        let mine = |who: &String, was: &String| who == name && was == applied;
        let known = self.applied.get(id).is_some_and(|(who, was)| mine(who, was));
        let again = known || (ours && tells);

        let said_by = |head: usize| said(&trees[head], folder, id);
        let is = |content: usize| {
            let odd = manifest["metadata"]["labels"].get("odd").is_some();
            manifest["spec"] == spec(id, content) && odd == !labels(content).is_empty()
        };
        let waits = !sync.spec.depends_on.is_empty();
        // A file that cannot be read may say it, too.
        let reads = |head: usize| legible(&trees[head], folder, id);
        let says_so = |head| match said_by(head) {
            Said::Wanted(content) => is(content),
            Said::Hidden => reads(head).is_some_and(|(_, content)| is(content)),
            Said::Nothing => false,
        };
        let before = || (0..trees.len()).any(says_so);
        match found.map(|head| (head, said_by(head))) {
            Some((_, Said::Wanted(content))) if is(content) => {}
            // The commit before, while the newest one waits.
            Some(_) if waits => assert!(before(), "{name} writes {id} as no commit says"),
            Some((head, Said::Nothing)) if id.name.len() == 1 => {
                // It may have been renamed into a file that is broken.
                let errors = has_errors(&trees[head], folder);
                assert!(errors, "{name} writes {id}, which its commit does not want");
                let last = self.files.get(&(name.to_owned(), id.clone()));
                let last = last.filter(|last| !last.is_past);
                assert!(last.is_none_or(|last| is(last.content)), "{name} makes {id} anew");
                assert!(before(), "{name} writes {id} as no commit says");
            }
            Some((_, Said::Hidden)) | None => {
                let last = self.files.get(&(name.to_owned(), id.clone()));
                let last = last.filter(|last| !last.is_past);
                let good = match last {
                    Some(last) => is(last.content),
                    None => before(),
                };
                assert!(
                    good,
                    "{name} writes {id} not as it was wanted last: {last:?}, found {found:?}"
                );
            }
            Some((head, says)) => {
                let own = id.name.len() > 1;
                assert!(
                    own,
                    "{name} writes {id}, of which commit {head} says {says:?}: {manifest}"
                );
            }
        }
        self.waits_for_others(name, (id, again), &sync, says_so, counts);
        let errors = found.is_some_and(|head| has_errors(&trees[head], folder));
        if sync.spec.failure_policy == FailurePolicy::Atomic && errors {
            let kept = found.is_some_and(|head| !matches!(said_by(head), Said::Wanted(_)));
            // One that was killed has applied it, or seen it applied.
            let ever = self.applied_ever.get(id).is_some_and(|(who, was)| mine(who, was));
            // The commit before, while the newest one waits.
            let whole = |head: usize| says_so(head) && !has_errors(&trees[head], folder);
            let earlier = waits && (0..trees.len()).any(whole);
            assert!(again || ever || kept || earlier, "{name} writes {id}: all or nothing");
        }
        if ours && known && self.by_hand.contains(id) {
            *counts.entry("change by hand undone").or_default() += 1;
            // The definition is the one that was applied, as the object is shown or as it was answered: only somebody else can
            // have changed the object.
            let shown = operator.stores.managed(id.kind).live(&Key::new(NAMESPACE, &*id.name));
            let shown = shown
                .is_some_and(|live| live.facts().annotations.get(keys::APPLIED) == Some(applied));
            let knows = shown || self.answered.get(id).is_some_and(|(who, was)| mine(who, was));
            let report = knows && sync.spec.drift == DriftPolicy::Report;
            assert!(!report, "{name} undoes a change of {id}, which is only to be told");
        }
    }

    /// A commit is applied once all that the GitSync depends on is there.
    fn waits_for_others(
        &self,
        name: &str,
        (id, again): (&ObjectId, bool),
        sync: &GitSync,
        says_so: impl Fn(usize) -> bool,
        counts: &mut Counts,
    ) {
        if sync.spec.depends_on.is_empty() || again {
            return;
        }
        let now = self
            .passes
            .get(name)
            .is_some_and(|pass| pass.moments.iter().any(|moment| moment.released));
        // An earlier commit that was let through stays the measure while the newest one waits.
        let uid = sync.metadata.uid.as_deref().unwrap_or_default();
        let earlier = self.released.iter().any(|(of, head)| of == uid && says_so(*head));
        assert!(now || earlier, "{name} writes {id} and does not wait for what it depends on");
        *counts.entry("let through by dependsOn").or_default() += 1;
    }

    /// A request arrives, and is about to be carried out.
    pub fn arrives(
        &mut self,
        (sync, writer): (&str, Writer),
        asked: &Request,
        server: &Server,
        counts: &mut Counts,
    ) {
        let call = &asked.call;
        let (Call::Apply { id, .. } | Call::ReplaceSpec { id, .. } | Call::Delete { id, .. }) =
            call
        else {
            return;
        };
        let Some(live) = server.get(&Name::Object(id.clone())) else { return };
        // Only if the server lets it through: what it says of uid and version decides.
        let at = |version: u64| text(live, "/metadata/resourceVersion") == version.to_string();
        let through = match call {
            Call::Apply { mode: Mode::Update { uid, version }, .. } => {
                text(live, "/metadata/uid") == uid && version.is_none_or(at)
            }
            Call::ReplaceSpec { version, .. } => at(*version),
            Call::Delete { uid, version, .. } => text(live, "/metadata/uid") == uid && at(*version),
            _ => false,
        };
        if !through || !server.allows(asked.account.as_ref(), call) {
            return;
        }
        assert!(!is_paused(live), "{sync} writes {id}, which is paused");
        let mark = annotation(live, keys::OWNER).unwrap_or_default();
        let me = server.get(&Name::Sync(sync.to_owned()));
        let uid = me.map(|me| text(me, "/metadata/uid")).unwrap_or_default();
        let (_, tail) = mark.split_once('/').unwrap_or_default();
        let of = |name: &str, uid: &str| mark == mark_of(uid, name, id);
        if matches!(call, Call::Delete { .. }) {
            // It may have been asked for before there was another GitSync of that name.
            let shown = self.passes.get(sync).map_or(0, |pass| pass.shown[0]);
            let before = |(uid, (name, at)): (&String, &(String, usize))| {
                name == sync && *at > shown && of(name, uid)
            };
            let mine = of(sync, uid) || me.is_none() || self.gone.iter().any(before);
            assert!(mine, "{sync} deletes {id}, which is marked {mark:?}");
            let protected = annotation(live, keys::PRUNE) == Some(keys::DISABLED);
            assert!(!protected, "{sync} deletes {id}, which is protected");
            return;
        }
        if tail == mark_of("", sync, id).trim_start_matches('/') {
            return;
        }
        if annotation(live, keys::ADOPT_BY) == Some(sync) {
            *counts.entry("adopted by annotation").or_default() += 1;
            return;
        }
        let uid_of = |other: &str| {
            let other = server.get(&Name::Sync(other.into()))?;
            Some(text(other, "/metadata/uid").to_owned())
        };
        let from = SYNCS.iter().find(|(other, _, _)| uid_of(other).is_some_and(|u| of(other, &u)));
        // It has been given away by one that has come to its end, which was not seen yet by who asked for this.
        let pass = self.passes.get(sync).filter(|_| writer != Writer::Late);
        let shown = pass.map_or(0, |pass| pass.shown[0]);
        let gone = self.gone.iter().any(|(uid, (name, at))| of(name, uid) && *at > shown);
        let known = from.is_some() || gone || me.is_none();
        assert!(known, "{sync} writes {id}, which is marked {mark:?}");
        let Some((from, _, _)) = from else { return };
        *counts.entry("handed over").or_default() += 1;
        self.gave((sync, from), id, server);
    }

    /// An object changes hands: the one who had it does not want it, or is the younger one of the two.
    fn gave(&self, (taker, from): (&str, &str), id: &ObjectId, server: &Server) {
        let place = |name: &str| SYNCS.iter().position(|(other, _, _)| *other == name);
        let giver = server.get(&Name::Sync(from.to_owned()));
        let ends = giver.is_none_or(|giver| is_deleting(giver));
        let suspended = giver.is_some_and(|giver| giver["spec"]["suspend"] == true);
        if ends || suspended || place(taker) < place(from) {
            return;
        }
        // What its last poll has read was known to all when this was asked for.
        let knew = self.knowing.get(&(taker.to_owned(), id.clone())).copied().unwrap_or_default();
        let generation = giver.and_then(|giver| giver["metadata"]["generation"].as_i64());
        let looked = self.looked.get(from).filter(|looked| looked.ended <= knew);
        let looked = looked.filter(|looked| Some(looked.answered) == generation);
        let wanted = self.wanted.get(&(from.to_owned(), id.clone()));
        if let (Some((since, true)), Some(seen)) = (wanted, looked.and_then(|l| l.seen)) {
            assert!(*since > seen, "{taker} takes {id} from {from}, which wants it and is older");
        }
    }

    /// A request was carried out and has changed something.
    pub fn arrived(
        &mut self,
        (sync, writer): (&str, Writer),
        call: &Call,
        server: &Server,
        counts: &mut Counts,
    ) {
        match call {
            Call::Apply { id, .. } | Call::ReplaceSpec { id, .. } | Call::Delete { id, .. } => {
                self.by_hand.remove(id);
                self.written.insert(id.clone(), (server.log.len(), writer));
            }
            Call::Status { name, uid, status, .. } => {
                self.says((name, uid), status, writer, server, counts);
            }
            _ => {}
        }
        if let Call::Delete { id, .. } = call {
            // Nobody wants it, or it would not go: what is made of it later is another object.
            self.applied.remove(id);
            self.applied_ever.remove(id);
            self.answered.remove(id);
        }
        if let (Call::Apply { id, manifest, .. }, Writer::Coroutine(_)) = (call, writer) {
            let said = manifest["metadata"]["annotations"].get(keys::APPLIED);
            let said = said.and_then(Value::as_str).unwrap_or_default().to_owned();
            self.applied.insert(id.clone(), (sync.to_owned(), said.clone()));
            self.applied_ever.insert(id.clone(), (sync.to_owned(), said));
        }
    }

    /// A reply gets back and says that all is well.
    pub fn answered(&mut self, sync: &str, call: &Call) {
        let Call::Apply { id, manifest, .. } = call else { return };
        let said = manifest["metadata"]["annotations"].get(keys::APPLIED);
        let said = said.and_then(Value::as_str).unwrap_or_default().to_owned();
        self.answered.insert(id.clone(), (sync.to_owned(), said));
    }

    /// The commit that a status says to have applied.
    pub(super) fn commit_of(revision: &str) -> usize {
        number(revision.rsplit(':').next().unwrap_or_default())
    }
}
