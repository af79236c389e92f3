//! `convoke verify image`: verifies the provenance of an image that a build has made, and prints what it says.
//!
//! The registry may say anything. What counts is what the given key has signed, about the digest that was asked for.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use serde_json::Value;

use super::connection::block_on;
use super::push_image::{credentials, policy};
use super::{CLUSTER, FOUND, Failure, USAGE, count, print};
use crate::controllers::agent_build::signing::dsse;
use crate::controllers::agent_build::signing::key::PublicKey;
use crate::controllers::agent_build::signing::statement::{PREDICATE, STATEMENT};
use crate::net::Dialler;
use crate::registry::client::Options;
use crate::registry::{Digest, Reference, Registry, RegistryError};
use convoke_core::text::printable;

/// How long all requests may take.
const TOTAL: Duration = Duration::from_secs(60);
/// Bytes of the largest file with a key.
const MAX_KEY: u64 = 64 << 10;

/// Verify what was built.
#[derive(Debug, ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Verify the provenance of an image, and print of which commit it was built
    Image(ImageArgs),
}

#[derive(Debug, ClapArgs)]
struct ImageArgs {
    /// The image: HOST/NAME@sha256:...
    #[arg(value_name = "IMAGE@DIGEST")]
    image: Reference,
    /// File with the public key of the operator (ConfigMap convoke-signing-public)
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Ask the registry over plain HTTP
    #[arg(long)]
    insecure: bool,
    /// Folder with docker's config.json and perhaps a ca.crt
    #[arg(long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    auth: String,
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let What::Image(args) = args.what;
    block_on(verify(args))
}

async fn verify(args: ImageArgs) -> Result<ExitCode, Failure> {
    let ImageArgs { image, key, insecure, auth } = args;
    let digest = image.digest().cloned().ok_or_else(|| {
        Failure::new(USAGE, format!("{image} has no digest"))
            .hint("a tag may be another image by now: write HOST/NAME@sha256:...; `kubectl get agentbuilds -o wide` shows it")
    })?;
    let key = public_key(&key)?;
    let failed = |error: RegistryError| Failure::new(CLUSTER, error.to_string());
    let image = image.image;
    let wrong = |error: RegistryError| Failure::new(USAGE, error.to_string());
    let credentials = credentials(&auth, &image).map_err(wrong)?;
    let options = Options { plain_http: insecure, credentials, total: TOTAL };
    let registry = Registry::new(Dialler::new(policy()), image.clone(), options);
    let mut registry = registry.map_err(failed)?.read_only();
    let envelopes = registry.attestations(&digest, PREDICATE).await.map_err(failed)?;
    let mut said = Vec::new();
    for envelope in &envelopes {
        if let Some(statement) = verified(envelope, &key, &digest) {
            said.push(facts(&statement));
        }
    }
    if said.is_empty() {
        let name = format!("{image}@{digest}");
        return Err(match envelopes.len() {
            0 => Failure::new(FOUND, format!("{name} has no provenance in its registry"))
                .hint("only templates with \"provenance\": true have it written"),
            all => {
                let all = count(all, "attestation");
                Failure::new(FOUND, format!("{name}: none of {all} of provenance is signed with this key"))
                    .hint("a key that was replaced verifies what was built before; each operator has a key of its own")
            }
        });
    }
    print(&format!("verified {image}@{digest}\n{}", said.join("\n")))
}

fn public_key(path: &PathBuf) -> Result<PublicKey, Failure> {
    use std::io::Read;
    let wrong = |why: String| {
        Failure::new(USAGE, format!("{}: {why}", path.display())).hint(
            "kubectl -n convoke-system get configmap convoke-signing-public --ignore-not-found -o go-template='{{index .data \"cosign.pub\"}}' > cosign.pub (there once a first image is attested)",
        )
    };
    let file =
        std::fs::File::open(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let mut pem = Vec::new();
    let read = file.take(MAX_KEY).read_to_end(&mut pem);
    read.map_err(|error| wrong(format!("cannot be read: {error}")))?;
    PublicKey::from_pem(&pem).map_err(|error| wrong(error.to_string()))
}

/// The statement of an envelope, if this key has signed it and it is about this digest.
fn verified(envelope: &[u8], key: &PublicKey, digest: &Digest) -> Option<Value> {
    let opened = dsse::open(envelope)?;
    let signed = opened.signed();
    opened.signatures.iter().find(|signature| key.verifies(&signed, signature))?;
    let statement: Value = serde_json::from_slice(&opened.payload).ok()?;
    let is_type = statement["_type"] == STATEMENT && statement["predicateType"] == PREDICATE;
    let mut subjects = statement["subject"].as_array()?.iter();
    let is_about = subjects.any(|subject| subject["digest"]["sha256"] == digest.hex());
    (is_type && is_about).then_some(statement)
}

/// The main facts of a statement, one a line.
fn facts(statement: &Value) -> String {
    let predicate = &statement["predicate"];
    let (build, run) = (&predicate["buildDefinition"], &predicate["runDetails"]);
    let (external, internal) = (&build["externalParameters"], &build["internalParameters"]);
    let text = |value: &Value| value.as_str().map(printable).unwrap_or_default();
    let dependencies = build["resolvedDependencies"].as_array().map(Vec::as_slice);
    let dependency = |kind: &str| {
        let all = dependencies.unwrap_or_default().iter();
        all.map(|one| text(&one["digest"][kind]))
            .find(|found| !found.is_empty())
            .unwrap_or_default()
    };
    let base = dependency("sha256");
    let base = if base.is_empty() { base } else { format!("sha256:{base}") };
    let version = text(&run["builder"]["version"]["convoke"]);
    let builder = format!("{} {version}", text(&run["builder"]["id"]));
    let lines = [
        ("repository", text(&external["repository"])),
        ("ref", text(&external["ref"])),
        ("commit", dependency("gitCommit")),
        ("subfolder", text(&external["subfolder"])),
        ("strategy", text(&external["strategy"])),
        ("base image", base),
        ("mode", text(&external["mode"])),
        ("pipeline of", text(&internal["pipelineOf"])),
        ("builder", builder.trim().to_owned()),
        ("run", text(&run["metadata"]["invocationId"])),
        ("finished", text(&run["metadata"]["finishedOn"])),
    ];
    let told = lines.iter().filter(|(_, value)| !value.is_empty());
    let told: Vec<_> = told.map(|(name, value)| format!("  {name:<12}{value}\n")).collect();
    told.concat()
}

#[cfg(test)]
#[path = "tests/verify.rs"]
mod tests;
