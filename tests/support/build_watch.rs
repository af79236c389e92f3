//! Watches the PipelineRuns of a namespace, and says what must never be seen there.
//!
//! A watch shows each state that was stored, in order: nothing happens between two looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use convoke::api::keys;
use futures::StreamExt;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::{Client, ResourceExt};
use tokio::task::JoinHandle;

/// The PipelineRuns of a namespace.
pub fn runs_of(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("tekton.dev", "v1", "PipelineRun");
    let resource = ApiResource::from_gvk_with_plural(&kind, "pipelineruns");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// A try of a key: of which build, of which key, and which one.
pub type Try = (String, String, u32);

/// See the module.
pub struct RunWatch {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    /// Those that Tekton works on, by UID.
    running: BTreeMap<String, Try>,
    /// The UID of the run that Tekton could begin with, of each try.
    begun: BTreeMap<Try, String>,
    wrong: Vec<String>,
}

impl RunWatch {
    /// Watches from now on.
    pub fn start(client: Client, namespace: &str) -> Self {
        let api = runs_of(&client, namespace);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let target = seen.clone();
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(api, Config::default()).default_backoff());
            let mut listed = false;
            while let Some(event) = events.next().await {
                let mut seen = target.lock().expect("lock");
                match event {
                    Ok(Event::Apply(run) | Event::InitApply(run)) => seen.see(&run, false),
                    Ok(Event::Delete(run)) => seen.see(&run, true),
                    Ok(Event::Init) if listed => seen.wrong.push("the watch has a gap".into()),
                    Ok(Event::Init) => {}
                    Ok(Event::InitDone) => listed = true,
                    // The storage of a new kind is still being prepared: it goes on from where it was.
                    Err(Error::InitialListFailed(_) | Error::WatchStartFailed(_)) => {}
                    Err(error) => seen.wrong.push(format!("the watch has a gap: {error}")),
                }
            }
        });
        Self { seen, task }
    }

    /// The tries that Tekton could begin with.
    pub fn begun(&self) -> BTreeSet<Try> {
        self.seen.lock().expect("lock").begun.keys().cloned().collect()
    }

    /// # Errors
    /// What was seen that must not be.
    pub fn verdict(&self) -> Result<(), String> {
        let wrong = &self.seen.lock().expect("lock").wrong;
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }
}

impl Drop for RunWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Seen {
    fn see(&mut self, run: &DynamicObject, deleted: bool) {
        let (name, uid) = (run.name_any(), run.uid().unwrap_or_default());
        let build = run.labels().get(keys::OWNER_NAME).cloned().unwrap_or_default();
        let owner = run.owner_references().iter().find(|owner| owner.controller == Some(true));
        if !owner.is_some_and(|owner| owner.kind == "AgentBuild" && owner.name == build) {
            self.wrong.push(format!("{name} is of no AgentBuild"));
        }
        let annotation = |key: &str| run.annotations().get(key).cloned().unwrap_or_default();
        let attempt = annotation("convoke.dev/attempt").parse().unwrap_or_default();
        let try_ = (build, annotation("convoke.dev/build-key"), attempt);
        let is_pending = run.data["spec"]["status"] == "PipelineRunPending";
        let has_ended = !run.data["status"]["conditions"][0]["status"].is_null();
        if deleted || has_ended || is_pending {
            self.running.remove(&uid);
            return;
        }
        let first = self.begun.entry(try_.clone()).or_insert_with(|| uid.clone());
        if *first != uid {
            self.wrong.push(format!("{name} runs for the second time: {try_:?}"));
        }
        self.running.insert(uid, try_);
        // One build of a namespace may run.
        if self.running.len() > 1 {
            self.wrong.push(format!("these run at once: {:?}", self.running));
        }
    }
}
