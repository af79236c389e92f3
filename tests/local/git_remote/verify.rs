//! Signatures of commits and tags, against real servers: G4.

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke::git::{Keys, SignedPart, Verification};
use convoke::sync::reasons::SourceReason;

use super::signing::{Signer, Signing, signed};
use super::source::{Reader, model};
use super::*;

fn keys(values: &[&str]) -> Arc<Keys> {
    let name = |at, text: &str| {
        format!("{at}.{}", if text.starts_with("ssh-") { "sshpub" } else { "asc" })
    };
    let data: BTreeMap<_, _> = values
        .iter()
        .enumerate()
        .map(|(at, text)| (name(at, text), text.as_bytes().to_vec()))
        .collect();
    Arc::new(Keys::of(&data).unwrap())
}

impl World {
    /// Signs the newest commit of a branch, as somebody who amends it does. Returns the new commit.
    fn sign(&self, branch: &str, signer: &Signer) -> String {
        let tree = format!("{branch}^{{tree}}");
        let id = self.repo.git(&signed(signer, &["commit-tree", "-S", "-m", "signed", &tree]));
        self.repo.branch(branch, &id);
        id
    }

    fn sign_tag(&self, name: &str, of: &str, signer: &Signer) {
        self.repo.git(&signed(signer, &["tag", "-f", "-s", "-m", "a release", name, of]));
    }

    fn verifying(&self, reference: GitRef, part: SignedPart, keys: &Arc<Keys>) -> Remote {
        self.remote_with(|options| {
            options.reference = reference;
            options.verification = Some(Verification { part, keys: keys.clone() });
        })
    }
}

/// Writes the object of a commit or tag as it is, and gives its id.
fn raw(repo: &Repo, kind: &str, bytes: &[u8]) -> String {
    repo.git_with(&["hash-object", "-t", kind, "-w", "--literally", "--stdin"], bytes)
}

fn text(repo: &Repo, kind: &str, name: &str) -> String {
    // `Repo::git` trims the end.
    format!("{}\n", repo.git(&["cat-file", kind, name]))
}

async fn reason(remote: &Remote) -> SourceReason {
    let error = sync(remote, "").await.unwrap_err();
    assert!(!error.is_terminal() && error.hint().is_some(), "{error:?}");
    error.source_reason()
}

#[tokio::test]
async fn g4_a_commit_is_read_only_if_it_is_signed_by_one_of_the_keys() {
    let world = World::new().await;
    let signing = Signing::new();
    let (key, other) = (
        signing.key("a", "ed25519", "sign", "never"),
        signing.key("b", "ed25519", "sign", "never"),
    );
    let (ssh, ssh_signer) = signing.ssh("k", &["-t", "ed25519"]);
    let ours = keys(&[&signing.export(&key), &ssh]);
    let remote = world.verifying(branch("main"), SignedPart::Commit, &ours);
    let unsigned = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let error = sync(&remote, "").await.unwrap_err();
    assert_eq!(error.source_reason(), SourceReason::SignatureMissing);
    assert_eq!(error.to_string(), format!("commit {unsigned} is not trusted: it is not signed"));

    let id = world.sign("main", &signing.openpgp(&key));
    let snapshot = sync(&remote, "").await.unwrap();
    assert_eq!(snapshot.commit().id, id);
    assert_eq!(snapshot.commit().signer, Some(format!("OpenPGP key {key}")));
    assert_eq!(content(&snapshot, "a.yaml"), "a: 1");
    let id = world.sign("main", &ssh_signer);
    let snapshot = sync(&remote, "").await.unwrap();
    assert_eq!(snapshot.commit().id, id);
    assert!(snapshot.commit().signer.as_ref().unwrap().starts_with("ssh key SHA256:"));
    // The commit that was read before is not read any more by its id, unless it is verified, too.
    assert_eq!(
        remote.snapshot(&unsigned, "").await.unwrap_err().source_reason(),
        SourceReason::SignatureMissing
    );
    // Without verification there is no signer.
    let plain = world.remote();
    assert_eq!(sync(&plain, "").await.unwrap().commit().signer, None);

    world.sign("main", &signing.openpgp(&other));
    assert_eq!(reason(&remote).await, SourceReason::SignatureKeyUnknown);
    world.sign("main", &signing.ssh_for("k", "file"));
    assert_eq!(reason(&remote).await, SourceReason::SignatureUnsupported);
    let both = keys(&[&signing.export(&key), &signing.export(&other)]);
    world.sign("main", &signing.openpgp(&other));
    sync(&world.verifying(branch("main"), SignedPart::Commit, &both), "").await.unwrap();
}

#[tokio::test]
async fn v23_a_commit_that_was_changed_after_it_was_signed_is_not_read() {
    let world = World::new().await;
    let signing = Signing::new();
    let key = signing.key("a", "ed25519", "sign", "never");
    let signer = signing.openpgp(&key);
    let ours = keys(&[&signing.export(&key)]);
    let remote = world.verifying(branch("main"), SignedPart::Commit, &ours);
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.sign("main", &signer);
    let good = text(&world.repo, "commit", "main");
    world.repo.commit("main", &[("a.yaml", "evil: 1")]);
    let evil = world.repo.git(&["rev-parse", "main^{tree}"]);
    let signed_tree = good.lines().next().unwrap().trim_start_matches("tree ").to_owned();
    let huge = format!("gpgsig {}\n -----BEGIN", "x".repeat(100_000));
    let again = format!("gpgsig {}", "gpgsig -----BEGIN PGP SIGNATURE-----\n x\ngpgsig ");
    for (from, to, expected) in [
        (&*signed_tree, &*evil, SourceReason::SignatureWrong),
        ("\nsigned\n", "\nsigned!\n", SourceReason::SignatureWrong),
        ("gpgsig ", &again[7..], SourceReason::SignatureMalformed),
        ("gpgsig -----BEGIN", &huge, SourceReason::SignatureMalformed),
    ] {
        let forged = raw(&world.repo, "commit", good.replacen(from, to, 1).as_bytes());
        world.repo.branch("main", &forged);
        assert_eq!(reason(&remote).await, expected, "{from:?}");
    }
    // What was not touched is still good.
    let same = raw(&world.repo, "commit", good.as_bytes());
    world.repo.branch("main", &same);
    assert_eq!(content(&sync(&remote, "").await.unwrap(), "a.yaml"), "a: 1");
}

#[tokio::test]
async fn g4_a_key_that_has_expired_or_is_revoked_does_not_count() {
    let world = World::new().await;
    let signing = Signing::new();
    world.repo.commit("main", &[("a.yaml", "a: 1")]);
    let past = "--faked-system-time 20260101T000000!";
    let options: Vec<_> = past.split(' ').collect();
    let old = signing.key_at(&options, "old", ["ed25519", "sign", "10d"]);
    world.sign("main", &signing.openpgp_with(&old, past));
    let ours = keys(&[&signing.export(&old)]);
    let remote = world.verifying(branch("main"), SignedPart::Commit, &ours);
    assert_eq!(reason(&remote).await, SourceReason::SignatureKeyExpired);
    let key = signing.key("a", "ed25519", "sign", "never");
    world.sign("main", &signing.openpgp(&key));
    signing.revoke(&key);
    let ours = keys(&[&signing.export(&key)]);
    let remote = world.verifying(branch("main"), SignedPart::Commit, &ours);
    assert_eq!(reason(&remote).await, SourceReason::SignatureKeyRevoked);
    // A subkey, of a key that does not sign itself.
    let primary = signing.key("p", "ed25519", "cert", "never");
    signing.gpg(&["--batch", "--quick-add-key", &primary, "ed25519", "sign", "never"]);
    let subkey = signing.fingerprints("p")[1].clone();
    world.sign("main", &signing.openpgp(&subkey));
    let ours = keys(&[&signing.export(&primary)]);
    let remote = world.verifying(branch("main"), SignedPart::Commit, &ours);
    let snapshot = sync(&remote, "").await.unwrap();
    assert_eq!(snapshot.commit().signer, Some(format!("OpenPGP key {primary}")));
}

#[tokio::test]
async fn g4_a_tag_is_fetched_and_verified_in_both_versions_of_the_protocol() {
    for version_0 in [false, true] {
        let world = World::new().await;
        if version_0 {
            world.server.only_version_0();
        }
        let signing = Signing::new();
        let key = signing.key("a", "ed25519", "sign", "never");
        let (signer, ours) = (signing.openpgp(&key), keys(&[&signing.export(&key)]));
        let first = world.repo.commit("main", &[("a.yaml", "a: 1")]);
        world.sign_tag("v1.0.0", "main", &signer);
        let remote = world.verifying(tag("v1.0.0"), SignedPart::Tag, &ours);
        let snapshot = sync(&remote, "").await.unwrap();
        assert_eq!(snapshot.commit().id, first, "its commit is not signed");
        assert_eq!(snapshot.commit().signer, Some(format!("OpenPGP key {key}")));
        // After a restart all of it is in the store.
        world.server.forget();
        let again = world.verifying(tag("v1.0.0"), SignedPart::Tag, &ours);
        let read = again.snapshot(&first, "").await.unwrap();
        assert_eq!(read.commit().signer, snapshot.commit().signer);
        assert!(world.server.steps().is_empty());
        // On top of what is there: another commit, and then another tag of the same commit.
        let range = GitRef { semver: Some("^1".into()), ..GitRef::default() };
        let remote = world.verifying(range, SignedPart::Tag, &ours);
        sync(&remote, "").await.unwrap();
        let second = world.repo.commit("main", &[("a.yaml", "a: 2")]);
        world.sign_tag("v1.1.0", "main", &signer);
        let snapshot = sync(&remote, "").await.unwrap();
        assert_eq!((&*snapshot.commit().id, &*content(&snapshot, "a.yaml")), (&*second, "a: 2"));
        world.sign_tag("v1.2.0", "main", &signer);
        let found = remote.resolve().await.unwrap();
        assert_eq!(found.name, "v1.2.0");
        remote.fetch(&found).await.unwrap();
        assert!(remote.snapshot(&second, "").await.unwrap().commit().signer.is_some());
        // A name for the same commit that nobody signed: what was read for the others does not count for it.
        world.repo.tag("v1.3.0", &second);
        assert_eq!(reason(&remote).await, SourceReason::SignatureMissing);
    }
}

#[tokio::test]
async fn v23_a_tag_that_is_not_exactly_the_signed_one_is_not_read() {
    let world = World::new().await;
    let signing = Signing::new();
    let key = signing.key("a", "ed25519", "sign", "never");
    let (signer, ours) = (signing.openpgp(&key), keys(&[&signing.export(&key)]));
    let first = world.repo.commit("main", &[("a.yaml", "a: 1")]);
    world.sign_tag("v1.0.0", &first, &signer);
    let reason_of =
        async |name: &str| reason(&world.verifying(tag(name), SignedPart::Tag, &ours)).await;
    // An old signed tag under a newer name.
    let old = world.repo.git(&["rev-parse", "v1.0.0"]);
    world.repo.tag("v2.0.0", &old);
    assert_eq!(reason_of("v2.0.0").await, SourceReason::SignedTagMismatch);
    world.repo.tag("light", &first);
    assert_eq!(reason_of("light").await, SourceReason::SignatureMissing);
    // A lightweight tag beside the signed one of the same commit, in the store that has that one.
    sync(&world.verifying(tag("v1.0.0"), SignedPart::Tag, &ours), "").await.unwrap();
    assert_eq!(reason_of("light").await, SourceReason::SignatureMissing);
    world.sign_tag("nested", "v1.0.0", &signer);
    assert_eq!(reason_of("nested").await, SourceReason::SignedTagMismatch);
    world.repo.annotated_tag("unsigned", &first);
    assert_eq!(reason_of("unsigned").await, SourceReason::SignatureMissing);
    // The signed tag, with another commit in it; and with something behind its signature.
    let evil = world.repo.commit("main", &[("a.yaml", "evil: 1")]);
    let good = text(&world.repo, "tag", "v1.0.0");
    let block = &good[good.find("-----BEGIN").unwrap()..];
    for (forged, expected) in [
        (good.replacen(&first, &evil, 1), SourceReason::SignatureWrong),
        (good.replacen("tag v1.0.0", "tag forged", 1), SourceReason::SignatureWrong),
        (format!("{good}{block}"), SourceReason::SignatureMalformed),
        (format!("{good}x\n"), SourceReason::SignatureMalformed),
    ] {
        let id = raw(&world.repo, "tag", forged.as_bytes());
        world.repo.tag("forged", &id);
        assert_eq!(reason_of("forged").await, expected, "{forged}");
    }
    // A ref that names no tag cannot be verified this way.
    let mut options = world.options(branch("main"));
    options.verification = Some(Verification { part: SignedPart::Tag, keys: ours.clone() });
    let error = Remote::new(options).unwrap_err();
    assert!(error.is_terminal() && error.to_string().contains("needs ref.tag or ref.semver"));
}

#[tokio::test(flavor = "multi_thread")]
async fn g4_a_signed_tag_is_fetched_over_ssh_too() {
    if !sshd::is_there() {
        return;
    }
    for (version, lines) in ssh::VERSIONS {
        let server = ssh::Ssh::new(&sshd::Settings { host_keys: &["ed25519"], lines }).await;
        let signing = Signing::new();
        let (public, signer) = signing.ssh("k", &["-t", "ed25519"]);
        let ours = keys(&[&public]);
        let first = server.world.repo.commit("main", &[("a.yaml", "a: 1")]);
        server.world.sign_tag("v1.0.0", "main", &signer);
        let remote = server.remote_with(|options| {
            options.reference = tag("v1.0.0");
            options.verification = Some(Verification { part: SignedPart::Tag, keys: ours.clone() });
        });
        let snapshot = sync(&remote, "").await.unwrap();
        assert_eq!(snapshot.commit().id, first, "version {version}");
        assert!(snapshot.commit().signer.is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g4_nothing_that_was_not_verified_is_read_or_kept() {
    let world = World::new().await;
    let signing = Signing::new();
    let (one, two) = (
        signing.key("a", "ed25519", "sign", "never"),
        signing.key("b", "ed25519", "sign", "never"),
    );
    let (ours, others) = (keys(&[&signing.export(&one)]), keys(&[&signing.export(&two)]));
    let unsigned = world.repo.commit("main", &[("a.yaml", &model("a"))]);
    let mut reader = Reader::new(&world);
    assert_eq!(reader.refresh().await, Ok(true));
    assert_eq!(reader.objects(), ["a"]);
    // Once verification is wanted, what was read without it does not count; without keys nothing is read.
    let verify = serde_json::json!({"secretRef": {"name": "keys"}});
    reader.spec.verify = serde_json::from_value(verify).unwrap();
    let reason = |result: Result<bool, _>| {
        let error: convoke::sync::commit::source_error::SourceError = result.unwrap_err();
        error.reason()
    };
    assert_eq!(reason(reader.refresh().await), SourceReason::VerificationKeysUnreadable);
    assert!(reader.is_blind());
    assert!(reader.recall(&unsigned).await.is_err() && reader.is_blind());
    reader.verify_with(Some(&ours));
    assert_eq!(reason(reader.refresh().await), SourceReason::SignatureMissing);
    assert!(reader.is_blind());
    assert!(reader.recall(&unsigned).await.is_err() && reader.is_blind(), "not by its id either");
    let first = world.sign("main", &signing.openpgp(&one));
    assert_eq!(reader.refresh().await, Ok(true));
    assert_eq!(reader.objects(), ["a"]);
    // An unsigned commit on top: what was read stays.
    world.repo.commit("main", &[("b.yaml", &model("b"))]);
    assert_eq!(reason(reader.refresh().await), SourceReason::SignatureMissing);
    assert_eq!(reader.objects(), ["a"]);
    // The same keys read anew change nothing. With others the commit that was read does not count any more.
    reader.verify_with(Some(&keys(&[&signing.export(&one)])));
    assert!(reader.refresh().await.is_err());
    assert_eq!(reader.objects(), ["a"]);
    reader.verify_with(Some(&others));
    assert_eq!(reason(reader.refresh().await), SourceReason::SignatureMissing);
    assert!(reader.is_blind());
    assert!(reader.recall(&first).await.is_err() && reader.is_blind());
    // With both it is the same commit again, also while the server does not answer.
    let both = keys(&[&signing.export(&one), &signing.export(&two)]);
    reader.verify_with(Some(&both));
    world.server.inject_always(Step::Advertise, Fault::Status(500));
    assert!(reader.refresh().await.is_err());
    reader.recall(&first).await.unwrap();
    assert_eq!(reader.objects(), ["a"]);
    reader.verify_with(Some(&ours));
    assert!(reader.refresh().await.is_err() && reader.is_blind());
    reader.recall(&first).await.unwrap();
    assert_eq!(reader.objects(), ["a"], "verified again, with the keys of today");
    // A broken commit learns what was wanted before from verified commits only.
    world.server.heal();
    let broken = world.repo.commit("main", &[("a.yaml", "kind: ["), ("b.yaml", &model("b"))]);
    assert!(!broken.is_empty());
    world.sign("main", &signing.openpgp(&one));
    let mut fresh = Reader::new(&world);
    fresh.spec = reader.spec.clone();
    fresh.verify_with(Some(&ours));
    assert_eq!(fresh.refresh().await, Ok(true));
    assert!(fresh.reach_back(&unsigned).await.is_err());
    assert!(fresh.is_lost(), "so no absence proves anything");
    assert_eq!(fresh.reach_back(&first).await, Ok(true));
    assert!(!fresh.is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn g4_nothing_counts_of_earlier_commits_whose_signer_may_not_sign_any_more() {
    let world = World::new().await;
    let signing = Signing::new();
    let [one, two] = ["a", "b"].map(|name| signing.key(name, "ed25519", "sign", "never"));
    let [first_only, second_only, both] = [&[&one][..], &[&two], &[&one, &two]].map(|all| {
        let all: Vec<_> = all.iter().map(|key| signing.export(key)).collect();
        keys(&all.iter().map(String::as_str).collect::<Vec<_>>())
    });
    let mut reader = Reader::new(&world);
    let verify = serde_json::json!({"secretRef": {"name": "keys"}});
    reader.spec.verify = serde_json::from_value(verify).unwrap();
    reader.verify_with(Some(&both));
    world.repo.commit("main", &[("x.yaml", &model("x")), ("y.yaml", &model("y"))]);
    let first = world.sign("main", &signing.openpgp(&one));
    assert_eq!(reader.refresh().await, Ok(true));
    world.repo.commit("main", &[("x.yaml", "kind: [")]);
    let second = world.sign("main", &signing.openpgp(&two));
    assert_eq!(reader.refresh().await, Ok(true));
    assert_eq!((reader.objects(), reader.kept()), (vec!["y"], vec!["x"]));
    // The first one's key goes: its definition of x goes, too, and it is not known what was wanted before.
    reader.verify_with(Some(&second_only));
    assert!(reader.is_blind(), "until it is read again");
    assert_eq!(reader.refresh().await, Ok(true));
    assert_eq!((reader.objects(), reader.kept(), reader.is_lost()), (vec!["y"], vec![], true));
    assert!(reader.reach_back(&first).await.is_err());
    assert_eq!((reader.kept(), reader.is_lost()), (vec![], true));
    // With it, both are read and verified again.
    reader.verify_with(Some(&both));
    assert_eq!(reader.refresh().await, Ok(true));
    assert_eq!(reader.reach_back(&first).await, Ok(true));
    assert_eq!((reader.kept(), reader.is_lost()), (vec!["x"], false));
    // The second one's key goes: the newest commit does not count, and the first one does.
    reader.verify_with(Some(&first_only));
    assert!(reader.refresh().await.is_err() && reader.is_blind());
    assert!(reader.recall(&second).await.is_err() && reader.is_blind());
    reader.recall(&first).await.unwrap();
    assert_eq!(reader.objects(), ["x", "y"]);
}
