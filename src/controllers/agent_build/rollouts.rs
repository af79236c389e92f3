//! Whether what uses a build's image went back from it (A10). The rollout is that of the Agent or MCPServer: its status says how it ended.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::agent_build::AgentBuildStatus;
use crate::api::rollout::RolloutStatus;
use crate::api::{Agent, Kind, MCPServer, ObjectId};
use crate::cluster::conditions;
use crate::cluster::live::{Managed, Ours};
use crate::cluster::store::{Key, Store};
use crate::controllers::reason::Reason;
use crate::runtime::queue::Queue;

/// The condition. It is there while it is true.
pub const ROLLED_BACK: &str = "RolledBack";
/// So many objects are named.
const MAX_NAMED: usize = 3;

/// The objects that may run images of builds.
pub struct Rollouts {
    agents: Arc<Store<Managed<Agent>>>,
    mcp_servers: Arc<Store<Managed<MCPServer>>>,
}

/// An object that runs the image of a build.
trait User: Ours {
    /// The name of its AgentBuild.
    fn build(&self) -> Option<&str>;
    /// Its revisions.
    fn rollout(&self) -> Option<&RolloutStatus>;
    /// The image that it went back from.
    fn failed(&self) -> Option<&str> {
        Some(self.rollout()?.failed.as_ref()?.image.as_str())
    }
}

impl User for Agent {
    fn build(&self) -> Option<&str> {
        Some(self.spec.build_ref.as_ref()?.name.as_str())
    }
    fn rollout(&self) -> Option<&RolloutStatus> {
        self.status.as_ref()?.rollout.as_ref()
    }
}

impl User for MCPServer {
    fn build(&self) -> Option<&str> {
        Some(self.spec.build_ref.as_ref()?.name.as_str())
    }
    fn rollout(&self) -> Option<&RolloutStatus> {
        self.status.as_ref()?.rollout.as_ref()
    }
}

impl Rollouts {
    /// Wakes AgentBuilds when a rollout of their image fails or ends well.
    pub fn new(
        agents: &Arc<Store<Managed<Agent>>>,
        mcp_servers: &Arc<Store<Managed<MCPServer>>>,
        queue: &Arc<Queue>,
    ) -> Self {
        wake(agents, queue);
        wake(mcp_servers, queue);
        Self { agents: agents.clone(), mcp_servers: mcp_servers.clone() }
    }

    /// Sets the condition or removes it. While it is not known what is there, it stays.
    pub fn tell(&self, key: &Key, generation: i64, new: &mut AgentBuildStatus) {
        if !self.agents.is_ready() || !self.mcp_servers.is_ready() {
            return;
        }
        let mut back = went_back(&self.agents, Kind::Agent, key, new.built_image.as_deref());
        let image = new.built_image.as_deref();
        back.extend(went_back(&self.mcp_servers, Kind::MCPServer, key, image));
        set(new, &back, generation, Timestamp::now());
    }
}

/// (pure) The condition, of the objects that went back from the image.
fn set(new: &mut AgentBuildStatus, back: &[String], generation: i64, now: Timestamp) {
    if back.is_empty() {
        conditions::remove(&mut new.conditions, ROLLED_BACK);
        return;
    }
    let mut named = back.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    if back.len() > MAX_NAMED {
        named = format!("{named} and {} more", back.len() - MAX_NAMED);
    }
    let message =
        format!("not available in time with this image, and running the one before: {named}");
    let reason = Reason::RolledBack.as_str();
    let observed = conditions::Observed { generation, now };
    observed.set(&mut new.conditions, ROLLED_BACK, "True", reason, &message);
}

/// The objects that use the build and went back from this image, as `agent/NAME`, sorted.
fn went_back<K: User>(
    store: &Store<Managed<K>>,
    kind: Kind,
    build: &Key,
    image: Option<&str>,
) -> Vec<String> {
    let term = ObjectId::new(Kind::AgentBuild, &*build.name).to_string();
    let found = store.found(&build.namespace, &term).into_iter();
    let mut names: Vec<_> = found
        .filter(|(_, entry)| {
            let object = entry.value.object();
            object.is_some_and(|user| {
                image.is_some() && user.failed() == image && user.build() == Some(&*build.name)
            })
        })
        .map(|(key, _)| format!("{}/{}", kind.as_str().to_lowercase(), key.name))
        .collect();
    names.sort();
    names
}

/// Puts the AgentBuild of an object on the queue when the object comes, goes, or has another rollout that failed.
fn wake<K: User>(store: &Arc<Store<Managed<K>>>, queue: &Arc<Queue>) {
    let sink = queue.clone();
    store.on_change(move |change| {
        let said = |object: Option<Arc<K>>| {
            let object = object?;
            Some((object.build()?.to_owned(), object.failed().map(str::to_owned)))
        };
        let old = change.old.and_then(|entry| said(entry.value.object()));
        let new = change.new.and_then(|entry| said(entry.value.object()));
        if old != new {
            for (build, _) in old.into_iter().chain(new) {
                sink.add(Key::new(&change.key.namespace, build));
            }
        }
    });
}

#[cfg(test)]
#[path = "tests/rollouts.rs"]
mod tests;
