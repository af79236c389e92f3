//! A GitSync that applies signed commits only, with the shipped rights of the operator.

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::support::signing::{Signer, Signing, signed};
use crate::support::team::{Team, condition, model, ready, shared_operator};
use crate::support::{Cluster, cluster};

impl Team<'_> {
    /// The Secret `keys` with this value `team.asc`.
    async fn put_keys(&self, value: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"},
            "stringData": {"team.asc": value, "README": "who may sign"}});
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = PatchParams::apply("tester").force();
        secrets.patch("keys", &params, &Patch::Apply(&object)).await.expect("Secret");
    }

    /// Signs the newest commit, and asks for a sync.
    async fn sign(&self, signer: &Signer) {
        self.repo.git(&signed(signer, &["commit", "-q", "--amend", "--no-edit", "-S"]));
        self.repo.git(&["push", "-q", "--force", "origin", "HEAD:main"]);
        self.request().await;
    }

    /// The status, the reason and the message of `Verified`.
    async fn verified(&self) -> Option<(String, String, String)> {
        let found = condition(&self.get().await, "Verified")?;
        Some((found.status, found.reason, found.message))
    }

    /// What was applied stays, and changes by hand are not undone, because no commit counts.
    async fn is_blind(&self) {
        let found = condition(&self.get().await, "DriftWatch").expect("DriftWatch");
        assert_eq!((&*found.status, &*found.reason), ("False", "NothingRead"), "{}", found.message);
    }

    async fn is_refused(&self, reason: &str) {
        self.reason(reason).await;
        let (status, found, message) = self.verified().await.expect("Verified");
        assert_eq!((&*status, &*found), ("False", reason), "{message}");
    }

    async fn is_verified_by(&self, key: &str) {
        let sync = self.wait_ready("True").await;
        let (status, reason, message) = self.verified().await.expect("Verified");
        assert_eq!((&*status, &*reason), ("True", "Verified"), "{message}");
        let applied = sync.status.and_then(|status| status.last_applied_revision).expect("applied");
        assert_eq!(message, format!("{applied} is signed by OpenPGP key {key}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g4_only_signed_commits_are_applied_and_what_was_applied_stays() {
    let cluster: &'static Cluster = cluster().await;
    shared_operator(cluster).await;
    let signing = Signing::new();
    let (key, other) = (
        signing.key("a", "ed25519", "sign", "never"),
        signing.key("b", "ed25519", "sign", "never"),
    );
    let team =
        Team::new(cluster, "verify", &[("m.yaml", &model("a")), ("z.yaml", &model("z"))]).await;
    let verify =
        json!({"verify": {"secretRef": {"name": "keys"}}, "prune": {"maxDeletions": "100%"}});
    team.create_sync(verify.clone()).await;

    // The right to read the Secret, the Secret, its keys, the signature.
    let sync = team.reason("VerificationKeysForbidden").await;
    team.do_as_told(&sync);
    team.request().await;
    let sync = team.reason("VerificationKeysMissing").await;
    assert!(ready(&sync).message.contains("create secret generic keys --from-file=team.asc"));
    team.put_keys("no key").await;
    team.request().await;
    team.is_refused("VerificationKeysInvalid").await;
    team.put_keys(&signing.export(&key)).await;
    team.request().await;
    team.is_refused("SignatureMissing").await;
    assert!(team.models().await.is_empty(), "nothing was applied");
    team.sign(&signing.openpgp(&key)).await;
    team.is_verified_by(&key).await;
    assert_eq!(team.models().await, ["a", "z"]);

    // An unsigned commit on top that deletes and creates.
    team.push(&[("m.yaml", None), ("n.yaml", Some(&model("b")))]).await;
    team.is_refused("SignatureMissing").await;
    assert_eq!(team.models().await, ["a", "z"], "neither deleted nor created");
    team.sign(&signing.openpgp(&other)).await;
    team.is_refused("SignatureKeyUnknown").await;
    assert_eq!(team.models().await, ["a", "z"]);

    // Another key: it is read again after the signature that did not count.
    team.put_keys(&signing.export(&other)).await;
    team.request().await;
    team.is_verified_by(&other).await;
    assert_eq!(team.models().await, ["b", "z"]);
    // The key of the commit that is applied is taken away: nothing changes, and nothing else is applied.
    team.put_keys(&signing.export(&key)).await;
    team.request().await;
    team.is_refused("SignatureKeyUnknown").await;
    assert_eq!(team.models().await, ["b", "z"]);
    team.is_blind().await;
    // The Secret comes back, and goes: nothing counts without keys.
    team.put_keys(&signing.export(&other)).await;
    team.request().await;
    team.is_verified_by(&other).await;
    assert_eq!(condition(&team.get().await, "DriftWatch"), None);
    let secrets: Api<Secret> = Api::namespaced(team.client.clone(), &team.namespace);
    secrets.delete("keys", &DeleteParams::default()).await.expect("deleted");
    team.request().await;
    team.is_refused("VerificationKeysMissing").await;
    team.is_blind().await;
    team.put_keys(&signing.export(&key)).await;
    team.sign(&signing.openpgp(&key)).await;
    team.is_verified_by(&key).await;

    // Without verification there is no condition.
    team.push(&[("o.yaml", Some(&model("c")))]).await;
    team.is_refused("SignatureMissing").await;
    team.create_sync(json!({"prune": {"maxDeletions": "100%"}})).await;
    team.wait_ready("True").await;
    assert_eq!(team.models().await, ["b", "c", "z"]);
    assert_eq!(team.verified().await, None);
    // And switched on again, what was applied without it stays.
    team.create_sync(verify).await;
    team.is_refused("SignatureMissing").await;
    assert_eq!(team.models().await, ["b", "c", "z"]);
    // The schema knows what mode Tag needs.
    let wrong = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "GitSync", "metadata": {"name": "wrong"},
        "spec": {"url": team.url(), "verify": {"mode": "Tag", "secretRef": {"name": "keys"}}}});
    let params = PatchParams::apply("tester").force();
    let refused =
        team.syncs.patch("wrong", &params, &Patch::Apply(&wrong)).await.expect_err("no tag");
    assert!(
        refused.to_string().contains("verify.mode Tag needs ref.tag or ref.semver"),
        "{refused}"
    );
}
