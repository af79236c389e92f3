//! `convoke approve GITSYNC`: releases the deletes that the prune brake holds, and no others.

use std::io::{BufRead, IsTerminal};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::connection::{Connection, ConnectionArgs, block_on};
use super::{CLUSTER, FOUND, Failure, USAGE, count, print};
use crate::api::git_sync::PendingPrune;
use crate::api::{GitSync, keys};
use crate::cluster::client::call;
use convoke_core::text::printable;

/// Field manager of the annotation.
const MANAGER: &str = "convoke-cli";

/// Release held deletes.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Name of the GitSync
    name: String,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Approve only this plan; see status.pendingPrune.digest
    #[arg(long)]
    digest: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    block_on(approve(args))
}

async fn approve(args: &Args) -> Result<ExitCode, Failure> {
    let connection = Connection::open(&args.connection).await?;
    let (name, namespace) = (&args.name, &connection.namespace);
    let api: Api<GitSync> = Api::namespaced(connection.client.clone(), namespace);
    let sync = call(api.get(name)).await.map_err(|error| {
        if error.is_gone() {
            Failure::new(CLUSTER, format!("there is no GitSync {name} in {namespace}"))
                .hint("name its namespace with -n")
        } else {
            connection.failure("get", "gitsyncs", &error)
        }
    })?;
    if sync.spec.suspend {
        // Resuming changes the spec, and an approval counts only for the spec that it was given for.
        let message = format!("GitSync {name} in {namespace} is suspended, and deletes nothing");
        let patch = r#"{"spec":{"suspend":false}}"#;
        return Err(Failure::new(FOUND, message).hint(format!(
            "resume it, and look at what it holds then: kubectl -n {namespace} patch gitsync {name} --type=merge -p '{patch}'"
        )));
    }
    let pending = sync.status.and_then(|status| status.pending_prune);
    // With a count of 0 all objects are protected, so there is nothing to approve.
    let pending = pending.filter(|pending| pending.count > 0).ok_or_else(|| {
        Failure::new(FOUND, format!("GitSync {name} in {namespace} holds no deletes"))
            .hint("see its state: kubectl get gitsync -o wide")
    })?;
    let digest = &pending.digest;
    if let Some(given) = args.digest.as_ref().filter(|given| *given != digest) {
        let message = format!("what waits now is {}, not {given}", printable(digest));
        return Err(Failure::new(FOUND, message)
            .hint("another commit or another object changed the plan: look at it again"));
    }
    print(&describe(namespace, name, &pending))?;
    let annotations = sync.metadata.annotations.unwrap_or_default();
    if annotations.get(keys::APPROVE_PRUNE) == Some(digest) {
        return print("approved already\n");
    }
    if !args.yes && !confirmed(&pending)? {
        return Err(Failure::new(FOUND, "nothing was approved"));
    }
    let patch = json!({"metadata": {"annotations": {keys::APPROVE_PRUNE: digest}}});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    call(api.patch(name, &params, &Patch::Merge(&patch))).await.map_err(|error| {
        if error.is_forbidden() || error.is_denied() {
            Failure::new(CLUSTER, format!("approving was refused: {error}")).hint(format!(
                "it takes the verbs approve and patch on GitSyncs; whoever runs the cluster gives them: kubectl -n {namespace} create rolebinding approvers --clusterrole=convoke-approver --user=<you>"
            ))
        } else {
            connection.failure("patch", "gitsyncs", &error)
        }
    })?;
    print(
        "approved: the operator deletes these once it has looked at the remote again, and nothing else\n",
    )
}

/// The deletes, for people.
fn describe(namespace: &str, name: &str, pending: &PendingPrune) -> String {
    let number = usize::try_from(pending.count).unwrap_or(0);
    let mut text = format!(
        "GitSync {namespace}/{name} holds {}: {}\n",
        count(number, "delete"),
        printable(&pending.reason)
    );
    for object in &pending.objects {
        text.push_str(&format!("    - {}\n", printable(object)));
    }
    let more = number.saturating_sub(pending.objects.len());
    if more > 0 {
        text.push_str(&format!("    and {more} more that the status does not list\n"));
    }
    for name in &pending.unread {
        text.push_str(&format!("    whether or not this can be read: {}\n", printable(name)));
    }
    text + &format!("    digest {}\n", printable(&pending.digest))
}

/// Asks on the terminal. Without a terminal that is an error.
fn confirmed(pending: &PendingPrune) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new(USAGE, "there is no terminal to ask on")
            .hint(format!("say that you mean it: --yes --digest {}", printable(&pending.digest))));
    }
    eprint!("Delete these? [yes/no] ");
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::new(USAGE, format!("cannot read the answer: {error}")))?;
    Ok(answer.trim() == "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g23_what_would_go_is_shown_with_its_digest_and_what_is_cut() {
        let pending = PendingPrune {
            digest: "0123456789abcdef".into(),
            count: 3,
            objects: vec!["Agent/a".into(), "Agent/\u{1b}[2J".into()],
            reason: "all 3 objects of this sync would be deleted".into(),
            unread: vec!["GitSync other: b/x.yaml".into()],
            ..PendingPrune::default()
        };
        insta::assert_snapshot!(describe("agents", "team", &pending), @r#"
        GitSync agents/team holds 3 deletes: all 3 objects of this sync would be deleted
            - Agent/a
            - Agent/ [2J
            and 1 more that the status does not list
            whether or not this can be read: GitSync other: b/x.yaml
            digest 0123456789abcdef
        "#);
    }
}
