//! (pure) Step "status" of an MCPServer.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use jiff::Timestamp;

use super::desired::endpoint;
use super::resolve::Resolved;
use crate::api::MCPServer;
use crate::api::mcp_server::MCPServerStatus;
use crate::cluster::{conditions, meta};
use crate::controllers::defaults::Defaults;
use crate::controllers::discovery::failure::nobody_confirms;
use crate::controllers::discovery::tools::TOOLS_DISCOVERED;
use crate::controllers::reason::Reason;
use crate::controllers::workload::built_image::unresolved;
use crate::controllers::workload::outcome::Applied;
use crate::controllers::workload::serving::{Place, judge};

/// The new status.
#[must_use]
pub fn status(
    server: &MCPServer,
    resolved: &Resolved,
    applied: &Applied,
    defaults: &Defaults,
    now: Timestamp,
) -> MCPServerStatus {
    let mut status = server.status.clone().unwrap_or_default();
    let mut list = std::mem::take(&mut status.conditions);
    let generation = server.metadata.generation.unwrap_or(0);
    let Resolved { image, serving, told, .. } = resolved;
    let (phase, message) = judge(&mut list, serving, applied, generation, now);
    let mut set = |good: &str, reason: &str, text: &str| {
        conditions::Observed { generation, now }.set(
            &mut list,
            "ImageResolved",
            good,
            reason,
            text,
        );
    };
    match &serving.waiting_for_build {
        Some(build) => {
            let missing = serving.missing_build.as_deref();
            let reason = missing.map_or(Reason::WaitingForBuild.as_str(), |_| "BuildMissing");
            set("False", reason, &unresolved(build, missing));
        }
        None if serving.place == Place::Elsewhere => {
            conditions::remove(&mut list, "ImageResolved");
        }
        None => set("True", "Resolved", ""),
    }
    status.observed_generation = Some(generation);
    status.phase = Some(phase);
    status.conditions = list;
    status.endpoint = serving.is_reached(applied).then(|| endpoint(server, defaults));
    status.image = applied.image.clone().or_else(|| image.clone());
    let ready = applied.observed.as_ref().map(|observed| observed.ready);
    status.ready_replicas = ready;
    status.rollout.clone_from(&applied.rollout);
    status.source = meta::source(&server.metadata);
    status.message = Some(message);
    let is_there = serving.place == Place::Elsewhere || ready.unwrap_or(0) > 0;
    match told {
        // When a pod is ready again it is asked anew.
        _ if !is_there => {
            let at = conditions::Observed { generation, now };
            nobody_confirms(&mut status.conditions, TOOLS_DISCOVERED, at);
        }
        Some(told) => told.tell_tools(&mut status, now),
        None => {}
    }
    status
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::readiness::Observed;
    use crate::controllers::workload::serving::Serving;

    fn server(spec: Value) -> MCPServer {
        let server = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "MCPServer", "metadata": {"name": "t", "namespace": "team"}, "spec": spec});
        serde_json::from_value(server).expect("MCPServer")
    }

    fn of(spec: Value, serving: Serving, applied: &Applied) -> MCPServerStatus {
        let server = server(spec);
        let resolved = Resolved { serving, ..Resolved::default() };
        status(&server, &resolved, applied, &Defaults::for_tests(), Timestamp::UNIX_EPOCH)
    }

    fn image_resolved(spec: Value, serving: Serving) -> Option<String> {
        let conditions = of(spec, serving, &Applied::for_tests()).conditions;
        conditions.into_iter().find(|c| c.type_ == "ImageResolved").map(|c| c.status)
    }

    #[test]
    fn t3_an_address_is_told_only_while_it_leads_to_the_server() {
        let told = |spec: Value, has_service, place| {
            let serving = Serving { place, ..Serving::default() };
            of(spec, serving, &Applied { has_service, ..Applied::for_tests() }).endpoint
        };
        let (image, remote) =
            (json!({"image": "i"}), json!({"remote": {"url": "https://t.example"}}));
        assert_eq!(told(image.clone(), false, Place::Pods), None);
        let own = "http://mcpserver-t.team.svc.cluster.local:8000/mcp";
        assert_eq!(told(image, true, Place::Pods).as_deref(), Some(own));
        let url = "https://t.example";
        assert_eq!(told(remote, false, Place::Elsewhere).as_deref(), Some(url));
    }

    #[test]
    fn t5_without_a_ready_pod_nobody_confirms_the_tools_that_are_shown() {
        let tools = json!([{"name": "a", "schemaHash": "0a"}]);
        let discovered = json!({"type": "ToolsDiscovered", "status": "True", "reason": "Discovered",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let before = json!({"tools": tools, "conditions": [discovered]});
        let before: MCPServerStatus = serde_json::from_value(before).expect("status");
        let told = |spec: Value, place, ready: i32| {
            let mut server = server(spec);
            server.status = Some(before.clone());
            let serving = Serving { place, ..Serving::default() };
            let resolved = Resolved { serving, ..Resolved::default() };
            let observed = Some(Observed { wanted: 1, ready, ..Observed::default() });
            let applied = Applied { observed, ..Applied::for_tests() };
            let now = Timestamp::UNIX_EPOCH;
            let status = status(&server, &resolved, &applied, &Defaults::for_tests(), now);
            assert_eq!(status.tools, before.tools, "they stay");
            let conditions = status.conditions.into_iter();
            let mut found = conditions.filter(|c| c.type_ == TOOLS_DISCOVERED);
            found.next().map(|c| (c.status, c.reason)).expect("the condition")
        };
        let pair = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
        let image = json!({"image": "i"});
        assert_eq!(told(image.clone(), Place::Pods, 0), pair("Unknown", "NoReadyPod"));
        assert_eq!(told(image, Place::Pods, 1), pair("True", "Discovered"));
        let remote = json!({"remote": {"url": "https://t.example"}});
        assert_eq!(told(remote, Place::Elsewhere, 0), pair("True", "Discovered"));
    }

    #[test]
    fn t2_the_image_of_a_build_is_resolved_once_it_exists() {
        let spec = json!({"buildRef": {"name": "b"}});
        let waiting = Serving { waiting_for_build: Some("b".into()), ..Serving::default() };
        assert_eq!(image_resolved(spec.clone(), waiting).as_deref(), Some("False"));
        assert_eq!(image_resolved(spec, Serving::default()).as_deref(), Some("True"));
        let remote = json!({"remote": {"url": "https://t.example/mcp"}});
        let elsewhere = Serving { place: Place::Elsewhere, ..Serving::default() };
        assert_eq!(image_resolved(remote, elsewhere), None);
    }
}
