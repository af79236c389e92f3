//! (tests) Scripts over the machine, with the stores, the operator and the small API server of the simulation. Nothing happens by
//! chance, and time passes only when a script says so. What the operator does can be written down.
#![allow(clippy::disallowed_methods)] // a point to count from

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::api::git_sync::{GitSyncStatus, PendingPrune, Stages};
use crate::api::{Kind, ObjectId, keys};
use crate::cluster::call_error::CallError;
use crate::definition::Catalog;
use crate::git::Revision;
use crate::order::Seq;
use crate::sync::commit::loaded::Loaded;
use crate::sync::io::effect::Call;
use crate::sync::io::poll::Answer;
use crate::sync::io::poll::SourceFailure;
use crate::sync::properties::definition;
use crate::sync::properties::repository::Definitions;
use crate::sync::reasons::SourceReason;
use crate::sync::simulation::operator::Operator;
use crate::sync::simulation::server::{Name, Server};
use crate::sync::transcripts::words;

pub(crate) struct Script {
    pub server: Server,
    pub operator: Operator,
    pub now: Instant,
    /// What each GitSync has read last.
    pub read: BTreeMap<String, Arc<Loaded>>,
    commits: usize,
    /// Requests that never get there.
    pub loses: Option<fn(&Call) -> bool>,
    /// The reconcile whose status says this is dropped before it gets there; once.
    pub drops: Option<fn(&GitSyncStatus) -> bool>,
    /// What happens while the next object is written, and is shown at once; once.
    pub meanwhile: Option<fn(&mut Server)>,
    /// What happens right after each write of an object, and is shown before the reply.
    pub right_after: Option<fn(&mut Server)>,
    /// When the remote was asked for the answers that are given, and how long before the polls that was, if it was for others.
    pub shared: Option<(Seq, Duration)>,
    /// What has happened, if it is to be written down.
    pub log: Option<Vec<String>>,
}

pub(crate) fn id(name: &str) -> ObjectId {
    ObjectId::new(Kind::ModelAPI, name)
}

pub(crate) fn of_sync(name: &str) -> Name {
    Name::Sync(name.to_owned())
}

/// A GitSync that follows a folder of its name, and is looked at when somebody asks.
pub(crate) fn git_sync(name: &str, most: usize) -> Value {
    json!({
        "apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync",
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"url": "https://git.example", "path": name, "interval": "10h", "retryInterval": "10h",
            "prune": {"maxDeletions": most}},
    })
}

impl Script {
    /// An operator that starts beside these GitSyncs.
    pub fn start(syncs: Vec<(&str, Value)>) -> Self {
        let (mut server, now) = (Server::default(), Instant::now());
        for (name, sync) in syncs {
            server.make(&of_sync(name), sync);
        }
        let operator = Operator::new(&server, now, 1, 48);
        let read = BTreeMap::new();
        let (loses, drops, log) = (None, None, None);
        let (meanwhile, right_after, shared, commits) = (None, None, None, 0);
        Self {
            server,
            operator,
            now,
            read,
            commits,
            loses,
            drops,
            meanwhile,
            right_after,
            shared,
            log,
        }
    }

    /// The GitSync `one`, which wants all of these, and others, which want nothing; all are Ready.
    pub fn new(others: &[&str], wants: &[&str], most: usize) -> Self {
        let names = ["one"].iter().chain(others);
        let mut script = Self::start(names.map(|name| (*name, git_sync(name, most))).collect());
        script.run();
        for other in others {
            script.finds(other, &[], &[]);
        }
        script.finds("one", wants, &[]);
        assert_eq!(script.ready("one"), "True: Succeeded");
        assert_eq!(script.objects(), wants);
        script
    }

    /// Another operator goes on, and knows nothing but what the server has.
    pub fn restart(&mut self) {
        self.say("the operator starts anew");
        self.operator = Operator::new(&self.server, self.now, 2, 48);
        self.operator.heard = self.log.is_some().then(Vec::new);
        self.read.clear();
        self.run();
    }

    /// Something is written down.
    pub fn say(&mut self, line: &str) {
        if let Some(log) = &mut self.log {
            log.push(format!("\n# {line}"));
        }
    }

    /// From here on it is written down what the operator does.
    pub fn listen(&mut self) {
        self.log = Some(Vec::new());
        self.operator.heard = Some(Vec::new());
    }

    /// Takes over what the operator has done besides requests.
    fn hear(&mut self) {
        let heard = self.operator.heard.as_mut().map(std::mem::take).unwrap_or_default();
        self.log.iter_mut().for_each(|log| log.extend(heard.iter().cloned()));
    }

    /// All that needs no poll and no time to speak of.
    pub fn run(&mut self) {
        for _ in 0..10_000 {
            self.operator.at(self.now);
            self.operator.begin();
            let mut some = false;
            for name in self.operator.active.keys().cloned().collect::<Vec<_>>() {
                some |= self.goes_on(&name);
            }
            for watch in 0..3 {
                while self.operator.show(&self.server, watch) {
                    some = true;
                }
            }
            let due = self.operator.next_due();
            // What others change is looked at a moment later.
            if let Some(due) = due.filter(|due| *due <= self.now + Duration::from_millis(600)) {
                self.now = self.now.max(due) + Duration::from_millis(1);
            } else if !some {
                return;
            }
        }
        panic!("it never comes to rest");
    }

    /// A reconcile goes on until it waits or is over; whether it has asked for something.
    fn goes_on(&mut self, name: &str) -> bool {
        let mut some = false;
        loop {
            let (asked, more) = self.operator.pull(name);
            let asked = asked.map(|flying| (flying.number, flying.asked.clone()));
            self.hear();
            if let Some((number, asked)) = asked {
                some = true;
                let says = |what: fn(&GitSyncStatus) -> bool| matches!(&asked.call, Call::Status { status, .. } if what(status));
                if self.drops.take_if(|what| says(*what)).is_some() {
                    self.operator.drop_pass(name);
                    return true;
                }
                self.operator.flying.pop();
                let writes = matches!(&asked.call, Call::Apply { .. });
                if let Some(happens) = self.meanwhile.take_if(|_| writes) {
                    happens(&mut self.server);
                    while self.operator.show(&self.server, 0) {}
                }
                let before = self.server.get(&of_sync(name)).cloned();
                let reply = if self.loses.is_some_and(|loses| loses(&asked.call)) {
                    Err(CallError::Deadline(Duration::ZERO))
                } else {
                    self.server.answer(asked.account.as_ref(), &asked.call)
                };
                if let Some(happens) = self.right_after.filter(|_| writes) {
                    while self.operator.show(&self.server, 0) {}
                    happens(&mut self.server);
                    while self.operator.show(&self.server, 0) {}
                }
                if let Some(log) = &mut self.log {
                    log.extend(words::of(name, &asked, &reply, before.as_deref()));
                }
                self.operator.machine.reply(name, number, reply);
            }
            if !more {
                return some;
            }
        }
    }

    pub fn pass(&mut self, time: Duration) {
        self.say(&format!("{} s pass", time.as_secs()));
        let until = self.now + time;
        while let Some(due) = self.operator.next_due().filter(|due| *due <= until) {
            self.now = self.now.max(due) + Duration::from_millis(1);
            self.run();
        }
        self.now = until;
        self.run();
    }

    /// Whether a poll of this one is under way.
    pub fn looks(&self, name: &str) -> bool {
        self.operator.polls.contains_key(name)
    }

    /// Somebody asks a GitSync to poll its remote.
    pub fn asks(&mut self, name: &str) {
        self.commits += 1;
        let said = self.commits.to_string();
        self.annotate(&of_sync(name), keys::REQUESTED_AT, &said);
        assert!(self.looks(name));
    }

    pub fn answers(
        &mut self,
        name: &str,
        found: Result<Arc<Loaded>, SourceFailure>,
        changed: bool,
    ) {
        let look = &self.operator.polls[name].look;
        let failure = found.as_ref().err().cloned();
        let loaded = found.ok().or_else(|| self.read.get(name).cloned());
        let (asked, age) = self.shared.unwrap_or((look.question.at, Duration::ZERO));
        let answer = Answer {
            question: look.question.clone(),
            asked,
            age,
            attempted: loaded.as_ref().map(|loaded| loaded.revision.clone()),
            stages: Stages { fetch_ms: 7, ..Stages::default() },
            changed,
            failure,
            loaded: loaded.clone(),
            recalled: None,
            webhook: None,
        };
        self.read.extend(loaded.map(|loaded| (name.to_owned(), loaded)));
        self.operator.polled(name, Ok(answer));
        self.run();
    }

    /// A commit as the poll that is under way reads it.
    pub fn commit(&mut self, name: &str, catalog: Catalog) -> Arc<Loaded> {
        let spec = self.operator.polls[name].look.sync.spec.clone();
        self.commits += 1;
        let commit = format!("{:040x}", self.commits);
        let before = self.read.get(name).filter(|before| before.answers(&spec)).cloned();
        let mut loaded = Loaded::of(&spec, &commit, catalog, before.as_deref());
        loaded.revision = Revision { commit, name: "main".into() };
        loaded.info.author = "Ann".into();
        loaded.info.subject = "a change".into();
        Arc::new(loaded)
    }

    /// The poll that is under way finds this.
    pub fn finds_catalog(&mut self, name: &str, catalog: Catalog) {
        let loaded = self.commit(name, catalog);
        self.answers(name, Ok(loaded), true);
    }

    /// The poll that is under way finds a commit that wants these, with broken files.
    pub fn finds(&mut self, name: &str, wants: &[&str], broken: &[&str]) {
        let mut catalog = Catalog::default();
        for name in wants {
            catalog.definitions.insert(id(name), definition(&id(name), 1));
        }
        catalog.broken_paths.extend(broken.iter().map(|path| (*path).to_owned()));
        self.finds_catalog(name, catalog);
    }

    /// The same with a content for each.
    pub fn finds_contents(&mut self, name: &str, wants: &[(ObjectId, usize)]) {
        let (mut catalog, mut definitions) = (Catalog::default(), Definitions::default());
        for (id, content) in wants {
            let definition = definitions.get(id, &format!("{name}/{}.yaml", id.name), *content);
            catalog.definitions.insert(id.clone(), definition);
        }
        self.finds_catalog(name, catalog);
    }

    /// It finds nothing new.
    pub fn finds_the_same(&mut self, name: &str) {
        let same = self.read[name].clone();
        self.answers(name, Ok(same), false);
    }

    pub fn fails(&mut self, name: &str) {
        let failure = SourceFailure {
            reason: SourceReason::ConnectionFailed,
            message: "the remote does not answer".into(),
            terminal: false,
            distrusts: false,
        };
        self.answers(name, Err(failure), false);
    }

    pub fn edit(&mut self, name: &Name, change: impl FnOnce(&mut Value)) {
        self.server.edit(name, change);
        self.run();
    }

    /// Somebody changes the spec of a GitSync.
    pub fn edit_spec(&mut self, name: &str, field: &str, value: Value) {
        self.say(&format!("somebody sets spec.{field} of {name} to {value}"));
        self.edit(&of_sync(name), |sync| sync["spec"][field] = value);
    }

    pub fn annotate(&mut self, name: &Name, key: &str, value: &str) {
        self.say(&format!("somebody annotates {} with {key}={value}", words::name(name)));
        self.edit(name, |object| object["metadata"]["annotations"][key] = json!(value));
    }

    pub fn delete(&mut self, name: &Name) {
        self.say(&format!("somebody deletes {}", words::name(name)));
        self.server.delete(name);
        self.run();
    }

    pub fn approve(&mut self) {
        let digest = self.pending().expect("held deletes").digest;
        self.annotate(&of_sync("one"), keys::APPROVE_PRUNE, &digest);
    }

    pub fn status(&self, name: &str) -> GitSyncStatus {
        let sync = self.server.get(&of_sync(name)).expect("a GitSync");
        serde_json::from_value(sync["status"].clone()).expect("a status")
    }

    pub fn pending(&self) -> Option<PendingPrune> {
        self.status("one").pending_prune
    }

    pub fn ready(&self, name: &str) -> String {
        let conditions = self.status(name).conditions;
        let ready = conditions.into_iter().find(|c| c.type_ == "Ready").expect("Ready");
        format!("{}: {}", ready.status, ready.reason)
    }

    /// How often a GitSync has changed, its status among it.
    pub fn said(&self, name: &str) -> usize {
        let name = of_sync(name);
        self.server.log.iter().filter(|shown| shown.name == name).count()
    }

    pub fn objects(&self) -> Vec<&str> {
        self.server.objects().map(|(id, _)| id.name.as_str()).collect()
    }
}
