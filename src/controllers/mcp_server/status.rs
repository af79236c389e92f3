//! (pure) The status of an MCPServer.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use jiff::Timestamp;

use super::desired::endpoint;
use crate::api::MCPServer;
use crate::api::mcp_server::MCPServerStatus;
use crate::cluster::{conditions, meta};
use crate::controllers::defaults::Defaults;
use crate::controllers::serving::{Outcome, judge};

/// The new status. `image` is what it runs or is to run, as far as that is known.
#[must_use]
pub fn status(
    server: &MCPServer,
    image: Option<String>,
    outcome: &Outcome,
    defaults: &Defaults,
    now: Timestamp,
) -> MCPServerStatus {
    let mut list = server.status.clone().unwrap_or_default().conditions;
    let generation = server.metadata.generation.unwrap_or(0);
    let (phase, message) = judge(&mut list, outcome, generation, now);
    let mut set = |good: &str, reason: &str, text: &str| {
        conditions::set(&mut list, "ImageResolved", good, reason, text, generation, now);
    };
    match &outcome.waiting_for_build {
        Some(build) => {
            let text = format!("AgentBuild {build} has built no image yet");
            set("False", "WaitingForBuild", &text);
        }
        None if outcome.elsewhere => conditions::remove(&mut list, "ImageResolved"),
        None => set("True", "Resolved", ""),
    }
    MCPServerStatus {
        observed_generation: Some(generation),
        phase: Some(phase),
        conditions: list,
        endpoint: outcome.is_reached().then(|| endpoint(server, defaults)),
        image,
        ready_replicas: outcome.observed.as_ref().map(|o| o.ready),
        source: meta::source(&server.metadata),
        message: Some(message),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(spec: Value, outcome: &Outcome) -> MCPServerStatus {
        let server = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "MCPServer", "metadata": {"name": "t", "namespace": "team"}, "spec": spec});
        let server = serde_json::from_value(server).expect("MCPServer");
        status(&server, None, outcome, &Defaults::for_tests(), Timestamp::UNIX_EPOCH)
    }

    fn resolved(spec: Value, outcome: &Outcome) -> Option<String> {
        let conditions = of(spec, outcome).conditions;
        conditions.into_iter().find(|c| c.type_ == "ImageResolved").map(|c| c.status)
    }

    #[test]
    fn t3_an_address_is_told_only_while_it_leads_to_the_server() {
        let told = |spec: Value, service, elsewhere| {
            of(spec, &Outcome { service, elsewhere, ..Outcome::default() }).endpoint
        };
        let (image, remote) =
            (json!({"image": "i"}), json!({"remote": {"url": "https://t.example"}}));
        assert_eq!(told(image.clone(), false, false), None);
        let own = "http://mcpserver-t.team.svc.cluster.local:8000/mcp";
        assert_eq!(told(image, true, false).as_deref(), Some(own));
        assert_eq!(told(remote, false, true).as_deref(), Some("https://t.example"));
    }

    #[test]
    fn t2_the_image_of_a_build_is_resolved_once_it_exists() {
        let spec = json!({"buildRef": {"name": "b"}});
        let waiting = Outcome { waiting_for_build: Some("b".into()), ..Outcome::default() };
        assert_eq!(resolved(spec.clone(), &waiting).as_deref(), Some("False"));
        assert_eq!(resolved(spec, &Outcome::default()).as_deref(), Some("True"));
        let remote = json!({"remote": {"url": "https://t.example/mcp"}});
        let elsewhere = Outcome { elsewhere: true, ..Outcome::default() };
        assert_eq!(resolved(remote, &elsewhere), None);
    }
}
