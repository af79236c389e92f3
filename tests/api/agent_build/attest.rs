//! The provenance of images, in a real registry and with a real key. Tekton's controller is not here: the tests push what a build would.

use std::path::Path;

use convoke::controllers::agent_build::signing::dsse::{self, IN_TOTO, Opened};
use convoke::controllers::agent_build::signing::key::SigningKey;
use convoke::controllers::agent_build::signing::statement::PREDICATE;
use convoke::registry::Digest;
use convoke::registry::attestations::{self, Attestation};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use super::reuse::Stage;
use super::support::gate::Gate;
use super::*;

pub(super) const OPERATOR: &str = "convoke-system";

/// A template as `dev`, whose images are attested.
pub(super) fn install_attested(cluster: &Cluster) {
    let text = std::fs::read_to_string(format!("{ROOT}/deploy/pipelines/template-dev.yaml"));
    let mut map: Value = serde_saphyr::from_str(&text.expect("the template")).expect("a ConfigMap");
    let template = map["data"]["template.json"].as_str().expect("a template");
    let mut template: Value = serde_json::from_str(template).expect("JSON");
    template["provenance"] = json!(true);
    map["data"]["template.json"] = template.to_string().into();
    map["metadata"]["name"] = "pipeline-template-attested".into();
    map["metadata"]["namespace"] = OPERATOR.into();
    cluster.apply(&map);
    cluster.kubectl(&["-n", OPERATOR, "delete", "secret", "convoke-signing", "--ignore-not-found"]);
    let public = ["delete", "configmap", "convoke-signing-public", "--ignore-not-found"];
    cluster.kubectl(&[&["-n", OPERATOR][..], &public].concat());
}

pub(super) fn apply(stage: &Stage<'_>, name: &str) {
    let image = format!("{}/{name}", stage.team.namespace);
    let output = json!({"image": image, "insecure": true});
    stage.team.apply_build(name, &json!({"output": output, "mode": "attested"}));
}

/// The public key, as everybody can read it.
async fn public_key(team: &Team<'_>) -> String {
    let api: Api<ConfigMap> = Api::namespaced(team.client.clone(), OPERATOR);
    let map = api.get("convoke-signing-public").await.expect("a public key");
    map.data.expect("data")["cosign.pub"].clone()
}

/// What a registry has of an image.
pub(super) async fn envelopes(stage: &Stage<'_>, image: &str, digest: &str) -> Vec<Opened> {
    let digest: Digest = digest.parse().expect("a digest");
    let found = stage.client(image).attestations(&digest, PREDICATE).await.expect("an answer");
    found.iter().map(|envelope| dsse::open(envelope).expect("an envelope")).collect()
}

/// Whether openssl says that the key has signed an envelope. The bytes are put together here once more.
fn openssl_verifies(opened: &Opened, public: &str) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let mut signed = format!("DSSEv1 {} {IN_TOTO} {} ", IN_TOTO.len(), opened.payload.len());
    signed += std::str::from_utf8(&opened.payload).expect("text");
    std::fs::write(at("message"), signed).expect("message");
    std::fs::write(at("key"), public).expect("key");
    std::fs::write(at("signature"), &opened.signatures[0]).expect("signature");
    let files = ["-verify", &at("key"), "-signature", &at("signature"), &at("message")];
    let status = Command::new("openssl").args(["dgst", "-sha256"]).args(files).status();
    status.expect("openssl").success()
}

/// What `convoke verify image` says: its exit code, and what it prints.
fn verified(image: &str, key: &Path) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_convoke"))
        .args(["verify", "image", image, "--insecure", "--key"])
        .arg(key)
        .output()
        .expect("convoke");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("text"))
}

/// The requests for attestations that the registry has answered.
pub(super) fn asked(stage: &Stage<'_>) -> usize {
    stage.registry.requests().iter().filter(|one| one.contains(".att")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_an_image_counts_when_what_was_built_of_which_commit_is_signed_in_the_registry() {
    let cluster = Cluster::exclusive().await;
    let Some(stage) = Stage::new(&cluster, false).await else { return };
    install_attested(&cluster);
    let team = &stage.team;
    let mut controller = stage.start();
    apply(&stage, "reviewer");
    team.commit(&controller, "reviewer", '1', Some('a'));
    let building = stage.building("reviewer").await;
    let (key, run) = (building.build_key.expect("a key"), building.pipeline_run.expect("a run"));
    let secrets: Api<Secret> = Api::namespaced(team.client.clone(), OPERATOR);
    let secret = async || secrets.get_opt("convoke-signing").await.expect("an answer");
    assert!(secret().await.is_none(), "nothing was to be signed so far");

    // Somebody else was faster, and says what is not so.
    let digest = stage.push("reviewer", "one", &format!("cvk-{key}")).await;
    let theirs = SigningKey::generate().expect("a key");
    let theirs = SigningKey::from_pem(theirs.get().as_bytes()).expect("a key");
    let lie = json!({"_type": "https://in-toto.io/Statement/v1", "predicateType": PREDICATE,
        "subject": [{"digest": {"sha256": digest.trim_start_matches("sha256:")}}], "predicate": {"lie": true}});
    let lie = lie.to_string().into_bytes();
    let signed = dsse::pre_authentication_encoding(IN_TOTO, &lie);
    let forged = dsse::envelope(&lie, &theirs.sign(&signed).expect("a signature"));
    let attestation = Attestation { envelope: &forged, predicate_type: PREDICATE, run: "theirs" };
    let of: Digest = digest.parse().expect("a digest");
    stage.client("reviewer").attest(&of, &attestation).await.expect("attested");

    team.end_with(&run, Some((stage.repository("reviewer"), digest.clone()))).await;
    let built = stage.succeeded("reviewer", &key).await;
    assert_eq!(condition(&built, "Ready"), Some(("True", "Built")));
    let all = envelopes(&stage, "reviewer", &digest).await;
    let [first, ours] = &all[..] else { panic!("{all:?}") };
    assert_eq!(first.payload, lie, "what others have signed stays");
    let public = public_key(team).await;
    assert!(openssl_verifies(ours, &public));
    assert!(!openssl_verifies(first, &public));

    // It says what the operator knows.
    let object = team.runs_api().get(&run).await.expect("the run");
    let statement: Value = serde_json::from_slice(&ours.payload).expect("JSON");
    let predicate = &statement["predicate"];
    let build = &predicate["buildDefinition"];
    assert_eq!(statement["subject"][0]["digest"]["sha256"], digest.trim_start_matches("sha256:"));
    assert_eq!(statement["subject"][0]["name"], stage.repository("reviewer"));
    assert_eq!(
        build["externalParameters"],
        json!({
            "repository": URL, "subfolder": "images/reviewer", "mode": "attested",
            "strategy": "Dockerfile", "dockerfile": "Dockerfile", "buildArgs": {"A": "1"},
        })
    );
    assert_eq!(build["resolvedDependencies"][0]["digest"]["gitCommit"], "1".repeat(40));
    assert_eq!(build["resolvedDependencies"][1]["digest"]["gitTree"], "a".repeat(40));
    assert_eq!(build["internalParameters"]["buildKey"], key);
    assert_eq!(build["internalParameters"]["pipelineOf"], "operator");
    let steps = &build["internalParameters"]["parameters"];
    assert_eq!(steps["push_convoke-image"], "registry.test:5000/convoke:1");
    let invocation = format!("{}/{run}/{}", team.namespace, object.uid().expect("a UID"));
    assert_eq!(predicate["runDetails"]["metadata"]["invocationId"], invocation);
    assert!(object.annotations()["convoke.dev/provenance"].starts_with("sha256:"));
    // The private key is nowhere but in its Secret.
    let pem = secret().await.expect("the key").data.expect("data")["key.pem"].0.clone();
    let pem = String::from_utf8(pem).expect("text");
    let line = pem.lines().nth(1).expect("a line");
    assert!(
        !format!("{object:?}{statement}{public}").contains(line) && !stage.registry.has_kept(line)
    );

    // Whoever verifies gets ours.
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("ours"), &public).expect("a key");
    std::fs::write(at("theirs"), theirs.public_pem()).expect("a key");
    std::fs::write(at("none"), pem).expect("no public key");
    let image = built.built_image.clone().expect("an image");
    let (code, said) = verified(&image, &at("ours"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with(&format!("verified {image}\n")), "{said}");
    assert!(said.contains(&format!("  commit      {}\n", "1".repeat(40))), "{said}");
    assert_eq!(said.matches("  repository  ").count(), 1, "{said}");
    let other = SigningKey::from_pem(SigningKey::generate().expect("a key").get().as_bytes());
    std::fs::write(at("third"), other.expect("a key").public_pem()).expect("a key");
    // cosign itself, on machines that have it.
    if let Some(cosign) = std::env::var_os("CONVOKE_COSIGN") {
        let verify = |key: &str| {
            Command::new(&cosign)
                .args([
                    "verify-attestation",
                    "--type",
                    "slsaprovenance1",
                    "--insecure-ignore-tlog=true",
                ])
                .args(["--allow-http-registry", "--key"])
                .arg(at(key))
                .arg(&image)
                .env("HOME", folder.path())
                .output()
                .expect("cosign")
        };
        let (ours, third) = (verify("ours"), verify("third"));
        let said = String::from_utf8_lossy(&ours.stderr);
        assert!(ours.status.success(), "{said}");
        let printed = String::from_utf8_lossy(&ours.stdout);
        assert_eq!(printed.lines().count(), 1, "{printed}");
        assert!(!third.status.success());
    }
    let nothing = stage.push("reviewer", "never attested", "x").await;
    let bare = format!("{}@{nothing}", stage.repository("reviewer"));
    for (image, key, wanted, words) in [
        (&image, "third", 1, "none of 2 attestations"),
        (&bare, "ours", 1, "has no provenance"),
        (&image, "none", 2, "no PEM of a public key"),
        (&image, "missing", 2, "cannot be read"),
        (&format!("{}:x", stage.repository("reviewer")), "ours", 2, "has no digest"),
        (&format!("127.0.0.1:1/x@{digest}"), "ours", 3, "127.0.0.1:1"),
    ] {
        let (code, said) = verified(image, &at(key));
        assert_eq!(code, Some(wanted), "{said}");
        assert!(said.contains(words), "{said}");
    }

    // At rest nobody is asked, nor after a restart with a commit that touches other files.
    let before = asked(&stage);
    drop(controller);
    controller = stage.start();
    team.commit(&controller, "reviewer", '2', Some('a'));
    apply(&stage, "witness");
    team.commit(&controller, "witness", '2', Some('a'));
    stage.building("witness").await;
    assert_eq!((asked(&stage), team.status("reviewer").await), (before, built));
    drop(controller);
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_an_image_waits_for_its_provenance_while_the_registry_is_away_and_after_a_restart() {
    let cluster = Cluster::exclusive().await;
    let Some(stage) = Stage::new(&cluster, false).await else { return };
    install_attested(&cluster);
    let team = &stage.team;
    let gate = Gate::before(stage.registry.address());
    let host = gate.address().to_string();
    let repository = format!("{host}/{}/reviewer", team.namespace);
    let controller = team.start_for(&host);
    apply(&stage, "reviewer");
    team.commit(&controller, "reviewer", '1', Some('a'));
    let first = stage.building("reviewer").await;
    let run = first.pipeline_run.clone().expect("a run");
    let digest = stage.push("reviewer", "one", "one").await;
    gate.cut();
    team.end_with(&run, Some((repository.clone(), digest.clone()))).await;
    let said = team.reason("reviewer", "ProvenancePending").await;
    assert!(said.contains("its provenance is not in the registry yet: cannot look for"), "{said}");
    let pending = team.status("reviewer").await;
    assert_eq!((pending.phase, &pending.built_image), (Some(BuildPhase::Building), &None));
    assert_eq!((pending.history.len(), asked(&stage)), (0, 0));

    // A newer commit does not wait for it.
    team.commit(&controller, "reviewer", '2', Some('b'));
    let is_next =
        |s: &AgentBuildStatus| s.pipeline_run.is_some() && s.pipeline_run != first.pipeline_run;
    let second = team.until("reviewer", "the newer one is built", is_next).await;
    let newer = second.pipeline_run.clone().expect("a run");
    let second_digest = stage.push("reviewer", "two", "two").await;
    team.end_with(&newer, Some((repository.clone(), second_digest.clone()))).await;
    team.reason("reviewer", "ProvenancePending").await;

    // The operator ends, and another one finds both.
    drop(controller);
    gate.mend();
    let controller = team.start_for(&host);
    team.commit(&controller, "reviewer", '2', Some('b'));
    let built = stage.succeeded("reviewer", second.build_key.as_deref().expect("a key")).await;
    assert_eq!(built.built_image, Some(format!("{repository}@{second_digest}")));
    // The older one is attested after the newer one, and is in the history then.
    let has_both = |s: &AgentBuildStatus| s.history.len() == 2;
    team.until("reviewer", "the history has both", has_both).await;
    for digest in [&digest, &second_digest] {
        assert_eq!(envelopes(&stage, "reviewer", digest).await.len(), 1);
    }

    // The image has to be there, and what is not heals without a restart.
    team.commit(&controller, "reviewer", '3', Some('c'));
    let third = stage.building("reviewer").await;
    let missing = format!("sha256:{}", "d".repeat(64));
    let run = third.pipeline_run.clone().expect("a run");
    team.end_with(&run, Some((repository.clone(), missing.clone()))).await;
    let said = team.reason("reviewer", "ProvenancePending").await;
    assert!(said.ends_with(&format!("the registry has no {repository}@{missing}")), "{said}");
    let pending = team.status("reviewer").await;
    assert_eq!(pending.built_image, built.built_image, "the last good one stays");
    // What somebody has put under its tag is no attestation, and holds nothing up.
    let there = stage.push("reviewer", "three", "three").await;
    let tag = attestations::tag(&there.parse().expect("a digest")).expect("a tag");
    stage.push("reviewer", "an image", tag.as_str()).await;
    team.end_with(&run, Some((repository.clone(), there.clone()))).await;
    let key = third.build_key.expect("a key");
    let built = stage.succeeded("reviewer", &key).await;
    assert_eq!(built.built_image, Some(format!("{repository}@{there}")));
    assert_eq!(envelopes(&stage, "reviewer", &there).await.len(), 1);
    drop(controller);
}

#[tokio::test(flavor = "multi_thread")]
async fn b12_a_key_that_may_not_be_read_is_told_and_one_that_is_brought_is_used() {
    let cluster = Cluster::exclusive().await;
    let Some(stage) = Stage::new(&cluster, false).await else { return };
    install_attested(&cluster);
    let team = &stage.team;
    // Their own key, and the operator may not read it.
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    support::run(Command::new("openssl").args([
        "genpkey",
        "-algorithm",
        "EC",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-out",
        &at("key.pem"),
    ]));
    let public =
        support::run(Command::new("openssl").args(["pkey", "-pubout", "-in", &at("key.pem")]));
    let from = format!("--from-file=key.pem={}", at("key.pem"));
    cluster.kubectl(&["-n", OPERATOR, "create", "secret", "generic", "convoke-signing", &from]);
    let subject = team.operator_user.split(':').nth(2).expect("a namespace").to_owned();
    let binding = format!("convoke-signing-{subject}");
    cluster.kubectl(&["-n", OPERATOR, "delete", "rolebinding", &binding]);
    let controller = stage.start();
    apply(&stage, "reviewer");
    team.commit(&controller, "reviewer", '1', Some('a'));
    let building = stage.building("reviewer").await;
    let digest = stage.push("reviewer", "one", "one").await;
    let pushed = (stage.repository("reviewer"), digest.clone());
    team.end_with(&building.pipeline_run.expect("a run"), Some(pushed)).await;
    let said = team.reason("reviewer", "ProvenancePending").await;
    assert!(
        said.contains("the Secret convoke-signing in namespace convoke-system cannot be read"),
        "{said}"
    );
    assert_eq!((team.status("reviewer").await.built_image, asked(&stage)), (None, 0));

    let account = format!("--serviceaccount={subject}:convoke");
    let bind = ["create", "rolebinding", &binding, "--role=convoke-signing", &account];
    cluster.kubectl(&[&["-n", OPERATOR][..], &bind].concat());
    let built = stage.succeeded("reviewer", building.build_key.as_deref().expect("a key")).await;
    assert!(built.built_image.is_some());
    assert_eq!(public_key(team).await, public);
    let all = envelopes(&stage, "reviewer", &digest).await;
    assert_eq!(all.len(), 1);
    assert!(openssl_verifies(&all[0], &public));

    // Another key signs what is built from then on, without a restart.
    cluster.kubectl(&["-n", OPERATOR, "delete", "secret", "convoke-signing"]);
    team.commit(&controller, "reviewer", '2', Some('b'));
    let building = stage.building("reviewer").await;
    let second = stage.push("reviewer", "two", "two").await;
    let pushed = (stage.repository("reviewer"), second.clone());
    team.end_with(&building.pipeline_run.expect("a run"), Some(pushed)).await;
    stage.succeeded("reviewer", building.build_key.as_deref().expect("a key")).await;
    let made = public_key(team).await;
    assert_ne!(made, public);
    assert!(openssl_verifies(&envelopes(&stage, "reviewer", &second).await[0], &made));
    assert!(
        openssl_verifies(&envelopes(&stage, "reviewer", &digest).await[0], &public),
        "the old one still verifies"
    );
    drop(controller);
}
