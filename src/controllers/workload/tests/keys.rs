use super::*;
use crate::controllers::model_api::keys::{IssuedFor, mark};
use k8s_openapi::api::apps::v1::DeploymentSpec;

fn with_replicas(replicas: i32) -> Deployment {
    let spec = DeploymentSpec { replicas: Some(replicas), ..DeploymentSpec::default() };
    Deployment { spec: Some(spec), ..Deployment::default() }
}

#[test]
fn m5_what_runs_with_given_keys_is_as_wanted_while_no_keys_can_be_made() {
    let key = IssuedFor { issued: 1_764_000_000, proxy: Some("gpt") };
    let live = mark(with_replicas(2), "digest", Some(key));
    assert!(is_made_from_the_same(&live, &marked_as(&live, with_replicas(2))));
    assert!(!is_made_from_the_same(&live, &marked_as(&live, with_replicas(3))));
    let without = meta::with_hash(with_replicas(2));
    assert!(is_made_from_the_same(&without, &marked_as(&without, without.clone())));
}

#[test]
fn m5_only_what_is_to_have_no_pods_needs_no_keys() {
    assert!(is_without_pods(&with_replicas(0)));
    assert!(!is_without_pods(&with_replicas(1)));
    assert!(!is_without_pods(&Deployment::default()));
}
