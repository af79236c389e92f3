use super::*;

#[test]
fn d2_whoever_may_plan_may_be_given_the_shipped_templates_and_no_other_configmap() {
    let text = include_str!("../../../deploy/rbac.yaml");
    let Limits { documents, depth, nodes, .. } = Limits::default();
    let parsed = document::parse(text, Budget { documents, depth, nodes });
    let mut documents = parsed.documents.into_iter().map(|document| document.value);
    let is_it = |value: &serde_json::Value| {
        value["kind"] == "Role" && value["metadata"]["name"] == "convoke-templates"
    };
    let role = documents.find(is_it).expect("the Role");
    let names: Vec<_> = shipped().expect("what is shipped").into_keys().collect();
    let rules = serde_json::json!([
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": names, "verbs": ["get"]}
    ]);
    let mut have = role["rules"].clone();
    if let Some(names) = have[0]["resourceNames"].as_array_mut() {
        names.sort_by_key(ToString::to_string);
    }
    assert_eq!(have, rules);
}
