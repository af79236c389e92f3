use super::*;
use crate::cluster::children::Child;
use crate::cluster::reflector;
use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

fn with_replicas(replicas: i32) -> Deployment {
    let spec = DeploymentSpec { replicas: Some(replicas), ..DeploymentSpec::default() };
    let metadata = ObjectMeta { name: Some("agent-a".into()), ..ObjectMeta::default() };
    Deployment { metadata, spec: Some(spec), ..Deployment::default() }
}

#[test]
fn m5_what_runs_with_given_keys_is_as_wanted_while_no_keys_can_be_made() {
    let marks = |digest: &str| KeyMarks {
        digest: digest.into(),
        issued: Some(1_764_000_000),
        proxy: Some("gpt".into()),
    };
    let live = marks("digest").put(with_replicas(2));
    let (_, entry) = reflector::entry::<Child<Deployment>>(live.clone());
    let given = KeyMarks::of(&entry.value).expect("marks");
    assert!(is_made_from_the_same(&live, &given.put(with_replicas(2))));
    assert!(!is_made_from_the_same(&live, &given.put(with_replicas(3))));
    assert!(!is_made_from_the_same(&live, &marks("other").put(with_replicas(2))));
}

#[test]
fn m5_only_what_is_to_have_no_pods_needs_no_keys() {
    assert!(is_without_pods(&with_replicas(0)));
    assert!(!is_without_pods(&with_replicas(1)));
    assert!(!is_without_pods(&Deployment::default()));
}
