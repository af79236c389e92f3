//! The reconcile of AgentBuilds. It has the steps of all reconciles, in the same order.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::Controller;
use super::again::{next, sooner};
use super::apply::remove;
use super::bases::{self, Following};
use super::credentials;
use super::decide::{self, Asked, Candidate, Decision, Found, Trigger, Wait};
use super::desired::manifest;
use super::diagnose::{Ended, diagnose};
use super::elsewhere::{CLEANUP_FAILED, tell_trouble};
use super::history::{is_surplus, records, take_what_ended, unattested};
use super::key::BuildKey;
use super::needs;
use super::owners::Owners;
use super::pipeline_run::repository;
use super::place::{self, Place};
use super::problem::BuildProblem;
use super::repository::Poll;
use super::resolve::{Resolved, Source, live_object};
use super::run::Run;
use super::signing::asks_for_provenance;
use super::status::{self, Finding, KeyFinding, UnknownSource};
use super::tekton::TektonState;
use crate::api::agent_build::{AgentBuildStatus, BuildFailure, NewerBuild};
use crate::api::{AgentBuild, keys};
use crate::cluster::client::CallError;
use crate::cluster::conditions;
use crate::cluster::live::Managed;
use crate::cluster::status::Target;
use crate::cluster::store::{Entry, Key};
use crate::controllers;
use crate::runtime::worker::{Next, Reconciler};
use convoke_core::sync::commit::source_at::SourceAt;

/// The AgentBuild of one reconcile.
pub struct Subject<'a> {
    /// Namespace and name.
    pub key: &'a Key,
    /// The entry of the store.
    pub entry: &'a Entry<Managed<AgentBuild>>,
    /// The object.
    pub build: &'a AgentBuild,
    /// The status that it has now.
    pub old: AgentBuildStatus,
    /// What is known of Tekton now.
    pub tekton: TektonState,
    /// Where its next run is made.
    pub place: Place,
    /// Whose a run is.
    pub owners: &'a Owners,
    /// Why some runs in other namespaces cannot be looked after.
    pub trouble: Option<String>,
    /// What is known of its base images.
    pub bases: Following,
}

impl Subject<'_> {
    /// The live runs of this AgentBuild, and those that an earlier one of this name has left.
    pub(super) fn runs(&self) -> Vec<Arc<Entry<Run>>> {
        let Some(store) = self.tekton.runs() else { return Vec::new() };
        self.owners.runs(store, self.key, &self.entry.value.facts.finalizers)
    }

    /// The run that the status calls under way, and its key.
    fn under_way(&self) -> Option<(BuildKey, Arc<Entry<Run>>)> {
        let (key, name) = decide::under_way(&self.old)?;
        let ours = |run: &Run| run.name == name && decide::is_ours(run, &self.entry.uid, &key);
        let run = self.runs().into_iter().find(|run| ours(&run.value))?;
        Some((key, run))
    }

    /// What people ask for by annotation.
    pub(super) fn asked(&self) -> Asked<'_> {
        let annotation = |key: &str| self.entry.value.facts.annotations.get(key);
        Asked { rebuild: annotation(keys::REBUILD), cancel: annotation(keys::CANCEL) }
    }

    /// The value of `convoke.dev/rebuild` that counts. When the annotation is removed, what was built before it is still not used.
    pub(super) fn rebuild(&self) -> Option<&str> {
        self.asked().rebuild.or(self.old.last_handled_rebuild.as_deref())
    }

    /// A build key, to decide about.
    fn candidate<'a>(
        &'a self,
        key: &'a BuildKey,
        runs: &'a [&'a Run],
        failure: Option<&'a BuildFailure>,
    ) -> Candidate<'a> {
        Candidate {
            name: &self.key.name,
            uid: &self.entry.uid,
            place: &self.place,
            key,
            runs,
            failure,
            renewed: false,
            trigger: Trigger::of(&self.build.spec.trigger),
            retry_limit: self.build.spec.retry_limit,
            asked: self.asked(),
            builder: self.tekton.builder(),
            now: Timestamp::now(),
        }
    }
}

impl Reconciler for Controller {
    type Error = CallError;
    const KIND: &'static str = "AgentBuild";

    async fn reconcile(self: Arc<Self>, key: Key) -> Result<Next, CallError> {
        let done = self.bring(&key).await;
        match done {
            Ok((_, Turn::Waits)) => {}
            // Whatever else it waits for must not hold up others. Its place is in the status.
            Ok((_, Turn::No)) => self.turns.note(&key, None),
            Ok((_, Turn::Unknown)) | Err(_) => self.turns.doubt(&key, Instant::now()),
        }
        done.map(|(next, _)| next)
    }
}

/// Whether a build waits for its turn, and for nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Waits,
    /// Its source is not known at the moment.
    Unknown,
    No,
}

/// What a step of a reconcile has done.
enum Step {
    /// The build waits for its turn, and its status says so now.
    Queued(Box<AgentBuildStatus>),
    /// All there is to do for now.
    Done(Next, Turn),
}

impl Controller {
    async fn bring(&self, key: &Key) -> Result<(Next, Turn), CallError> {
        let Some(entry) = self.builds.get(key) else {
            self.lags.hold(key, false, Instant::now());
            self.forget(key);
            let again = self.sweep(key, None).await?;
            return Ok((sooner(Next::Forget, again), Turn::No));
        };
        if entry.value.facts.deleting {
            return self.part(key, &entry).await.map(|next| (next, Turn::No));
        }
        let Some(build) = live_object(key, &entry) else { return Ok((Next::Settled, Turn::No)) };
        let pinned;
        let old = build.status.clone().unwrap_or_default();
        let tekton = self.tekton.state();
        let (place, owners) = (Place::at_home(&key.namespace), &*self.owners);
        let (entry, build, trouble, bases) = (&entry, &*build, None, Following::default());
        let mut subject = Subject { key, entry, build, old, tekton, place, owners, trouble, bases };

        let pending = self.remove_pending(&subject).await?;
        let tidied = self.tidy(&subject).await;
        subject.trouble = tidied.trouble;
        let unknown = match self.pinned(&subject).await {
            Ok(None) => None,
            Ok(Some((build, stale))) => {
                pinned = build;
                (subject.build, subject.bases.stale) = (&pinned, stale);
                None
            }
            Err(problem) => Some(problem),
        };
        let (next, turn) = self.go_on(&mut subject, unknown).await?;
        Ok((sooner(sooner(next, tidied.again), pending), turn))
    }

    /// `unknown`: why it is not known what the base image is.
    async fn go_on(
        &self,
        subject: &mut Subject<'_>,
        unknown: Option<BuildProblem>,
    ) -> Result<(Next, Turn), CallError> {
        // Resolve, and validate what is found.
        let (mut source, access) = match self.resolve_source(subject) {
            Source::Known(source, access) => (source, access),
            Source::Lagging(left) => return Ok((Next::After(left), Turn::Unknown)),
            Source::Unknown(finding) => {
                return self.idle(subject, &finding).await.map(|next| (next, Turn::Unknown));
            }
        };
        let resolved = match unknown.or(self.pin(subject, &mut source).await.err()) {
            None => self.resolve(subject, &source, access).await?,
            Some(problem) => Err(problem),
        };
        let resolved = match resolved {
            Ok(resolved) => resolved,
            Err(problem) => {
                // What was built in good order is attested all the same.
                let left = self.attest(subject).await;
                let next = self.tell(subject, &Finding::Broken(problem)).await?;
                return Ok((sooner(next, left.again), Turn::No));
            }
        };

        let (template, registry) = (&resolved.template, &resolved.registry);
        let needs = needs::of_template(template, &subject.build.spec, registry);
        subject.place = self.owners.place(subject.key, needs);

        // Desired, apply, status. A build that waits for its turn says so first.
        loop {
            match self.step(subject, &source, &resolved).await? {
                Step::Queued(status) => subject.old = *status,
                Step::Done(next, turn) => return Ok((next, turn)),
            }
        }
    }

    /// One decision about a key, and what it asks for.
    async fn step(
        &self,
        subject: &Subject<'_>,
        source: &SourceAt,
        resolved: &Resolved,
    ) -> Result<Step, CallError> {
        let key = &resolved.key;
        let newer = NewerBuild { key: key.to_string(), commit: Some(source.commit.clone()) };
        let signing = self.attest(subject).await;
        let entries = subject.runs();
        let mut runs: Vec<_> = entries.iter().map(|entry| &entry.value).collect();
        let newest = subject.candidate(key, &runs, None).newest();
        let Ended { failure, steps, held_up } = match newest {
            Some(run) => diagnose(&self.client, run, &subject.old).await?,
            None => Ended::default(),
        };
        let renewed = self.renewed(subject, resolved, newest, failure.as_ref()).await;
        let candidate = Candidate { renewed, ..subject.candidate(key, &runs, failure.as_ref()) };
        let mut decision = decide::decide(&subject.old, &candidate);
        let found: Option<Found>;
        if decide::is_untouched(&subject.old, &candidate, &decision) {
            found = self.find_image(subject, source, resolved).await;
            decision = found.as_ref().map_or(decision, Decision::Found);
        }
        let pod;
        if matches!(decision, Decision::Enqueue(_) | Decision::Create(_)) {
            pod = self.lingering(subject, source, resolved, &runs).await?;
            decision = pod.as_ref().map_or(decision, |pod| Decision::Wait(Wait::Pod(pod)));
        }
        if let Decision::Show(run) = decision
            && subject.old.built_key.as_deref() != Some(key.as_str())
        {
            self.prove(subject, resolved, run).await;
        }
        if let Some((run, has_image)) = decide::unwanted(&subject.old, &candidate, &decision) {
            self.stop(subject, &entries, run, has_image.then_some(&newer)).await?;
        }
        let manifest = match decision {
            Decision::Enqueue(attempt) | Decision::Create(attempt) => {
                let rendered = credentials::wanted(subject, resolved).and_then(|secrets| {
                    let secrets_of = secrets.as_ref();
                    let asked = asks_for_provenance(subject, source, resolved);
                    let asked = asked.as_ref();
                    let run = manifest(subject, source, resolved, attempt, secrets_of, asked)?;
                    Ok((run, secrets))
                });
                match rendered {
                    Ok(rendered) => Some(rendered),
                    Err(problem) => {
                        let next = self.tell(subject, &Finding::Broken(problem)).await?;
                        return Ok(Step::Done(next, Turn::No));
                    }
                }
            }
            _ => None,
        };

        // Apply.
        let mut created = None;
        match (decision, manifest) {
            (Decision::Create(_), Some((manifest, secrets))) => {
                match self.create(subject, resolved, manifest, secrets.as_ref()).await? {
                    Ok(Some(run)) => created = Some(run),
                    Ok(None) => decision = Decision::Wait(Wait::Turn),
                    Err(problem) => {
                        let next = self.tell(subject, &Finding::Refused(key, problem)).await?;
                        return Ok(Step::Done(next, Turn::No));
                    }
                }
            }
            (Decision::Cancel(run), _) => self.stop(subject, &entries, run, None).await?,
            (Decision::Supersede(run), _) => {
                self.stop(subject, &entries, run, Some(&newer)).await?;
            }
            _ => {}
        }
        let candidate;
        if let Some(run) = &created {
            runs.push(&run.value);
            candidate = subject.candidate(key, &runs, failure.as_ref());
            decision = decide::decide(&subject.old, &candidate);
        }

        // Status.
        let image = repository(&subject.build.spec, &resolved.registry);
        let finding = Finding::Key(KeyFinding {
            key,
            home: &subject.key.namespace,
            name: &subject.key.name,
            parameters: Some(&resolved.parameters),
            repository: &image,
            decision,
            failure: failure.as_ref(),
            steps: &steps,
            held_up: held_up.as_deref(),
            unattested: &signing,
            rebuild: subject.rebuild(),
            limits: self.turns.limits(),
        });
        let (new, next) = self.told(subject, &finding).await?;
        Ok(match decision {
            Decision::Enqueue(_) => Step::Queued(Box::new(new)),
            Decision::Wait(Wait::Turn) => Step::Done(next, Turn::Waits),
            Decision::Wait(Wait::Pending(_)) => {
                self.turns.note(subject.key, queued(&subject.old));
                Step::Done(next, Turn::Waits)
            }
            // Nobody is held up: without Tekton nobody builds. When it comes, all of them are there.
            Decision::Wait(Wait::NoBuilder) => {
                self.turns.note(subject.key, queued(&new));
                Step::Done(next, Turn::Waits)
            }
            _ => Step::Done(next, Turn::No),
        })
    }

    /// Step "status".
    async fn tell(&self, subject: &Subject<'_>, finding: &Finding<'_>) -> Result<Next, CallError> {
        self.told(subject, finding).await.map(|(_, next)| next)
    }

    /// The same; gives the status, too.
    async fn told(
        &self,
        subject: &Subject<'_>,
        finding: &Finding<'_>,
    ) -> Result<(AgentBuildStatus, Next), CallError> {
        let (meta, builder) = (&subject.build.metadata, subject.tekton.builder());
        let mut new = status::status(&subject.old, meta, finding, builder, Timestamp::now());
        let next = bases::note(
            &subject.build.spec,
            &subject.bases,
            &mut new,
            next(finding, Timestamp::now()),
        );
        let next = self.follow_tag(subject, finding, &mut new, next).await;
        let new = self.write(subject, new).await?;
        Ok((new, next))
    }

    /// Step "status" of a build whose source is not known. A run that is under way is followed to its end.
    async fn idle(&self, subject: &Subject<'_>, finding: &Finding<'_>) -> Result<Next, CallError> {
        let spec = &subject.build.spec;
        let signing = self.attest(subject).await;
        let under_way = subject.under_way().and_then(|(key, run)| {
            let registry = self.registry(spec)?;
            Some((key, run, repository(spec, &registry)))
        });
        let Ended { failure, steps, held_up } = match &under_way {
            Some((_, run, _)) => diagnose(&self.client, &run.value, &subject.old).await?,
            None => Ended::default(),
        };
        let cancels = |key: &BuildKey, run: &Run| {
            subject.asked().cancel == Some(key.as_str()) && run.is_running() && !run.stopping
        };
        if let Some((key, run, _)) = &under_way
            && cancels(key, &run.value)
        {
            self.stop(subject, std::slice::from_ref(run), &run.value, None).await?;
        }
        let shown = under_way.as_ref().map(|(key, run, repository)| {
            let run = &run.value;
            Finding::Key(KeyFinding {
                key,
                home: &subject.key.namespace,
                name: &subject.key.name,
                parameters: subject.old.parameters_hash.as_deref(),
                repository,
                decision: if cancels(key, run) {
                    Decision::Cancel(run)
                } else {
                    Decision::Show(run)
                },
                failure: failure.as_ref(),
                steps: &steps,
                held_up: held_up.as_deref(),
                unattested: &signing,
                rebuild: subject.old.last_handled_rebuild.as_deref(),
                limits: self.turns.limits(),
            })
        });
        let unknown = UnknownSource { under_way: shown.as_ref(), finding };
        let (meta, builder) = (&subject.build.metadata, subject.tekton.builder());
        let new = status::idle(&subject.old, meta, unknown, builder, Timestamp::now());
        let goes_on = decide::under_way(&new).is_some();
        self.write(subject, new).await?;
        let told = shown.as_ref().filter(|_| goes_on).unwrap_or(finding);
        Ok(next(told, Timestamp::now()))
    }

    /// Writes the status, with the history. Then what is older than the history goes.
    async fn write(
        &self,
        subject: &Subject<'_>,
        mut new: AgentBuildStatus,
    ) -> Result<AgentBuildStatus, CallError> {
        let Subject { key, entry, old, build, .. } = subject;
        let ours = |run: &Arc<Entry<Run>>| run.value.owner_uid.as_deref() == Some(&*entry.uid);
        let runs: Vec<_> = subject.runs().into_iter().filter(ours).collect();
        new.observed_revision = match &build.spec.source.git {
            Some(_) => {
                // Of another spec, it may be of another repository.
                let is_of_spec = old.observed_generation == build.metadata.generation;
                let before = new.observed_revision.filter(|_| is_of_spec);
                Poll::of(&build.spec)
                    .and_then(|poll| self.polls.revision(key, &entry.uid, &poll.place))
                    .or(before)
            }
            None => None,
        };
        new.history = records(&new.history, runs.iter().map(|run| &run.value), &build.spec.history);
        take_what_ended(&mut new, old, runs.iter().map(|run| &run.value));
        self.rollouts.tell(key, build.metadata.generation.unwrap_or_default(), &mut new);
        let generation = build.metadata.generation.unwrap_or_default();
        let observed = conditions::Observed { generation, now: Timestamp::now() };
        for (kind, why) in
            [(CLEANUP_FAILED, &subject.trouble), (bases::STALE, &subject.bases.stale)]
        {
            if kind == bases::STALE && !subject.bases.is_known(&build.spec) {
                continue;
            }
            tell_trouble(&mut new.conditions, kind, why.as_deref(), observed);
        }
        new.build_namespace = place::of_status(&new, old, runs.iter().map(|run| &run.value));
        let target =
            Target { client: &self.client, store: self.builds.as_ref(), key, uid: &entry.uid };
        controllers::status::write::<AgentBuild, _>(&self.events, &target, Some(old), &new).await?;
        if let Some(store) = subject.tekton.runs() {
            let all = runs.iter().map(|run| &run.value);
            let waiting = unattested(all, &build.spec.history);
            for run in runs.iter().filter(|run| is_surplus(&run.value, &new, &waiting)) {
                remove(&self.client, store, run).await?;
            }
        }
        Ok(new)
    }
}

/// Since when a build waits for its turn.
pub fn queued(status: &AgentBuildStatus) -> Option<Timestamp> {
    status.queued_at.as_deref()?.parse().ok()
}
