use super::*;
use crate::cli::templates::shipped;

fn spec(mode: &str) -> AgentBuildSpec {
    let text = format!(
        "{{\"source\": {{\"gitSync\": {{}}, \"subfolder\": \"image\"}}, \"output\": {{\"image\": \"a/b\"}}, \"mode\": \"{mode}\"}}"
    );
    serde_json::from_str(&text).expect("a spec")
}

/// The shipped ConfigMaps, changed.
fn live(change: impl Fn(&mut ConfigMaps)) -> Found {
    let mut maps = shipped().expect("what is shipped");
    change(&mut maps);
    Found::default().with(maps)
}

fn step(maps: &mut ConfigMaps, name: &str, version: Option<&str>) {
    let map = maps.get_mut(name).expect(name);
    map.step.version = version.map(str::to_owned);
}

fn template(maps: &mut ConfigMaps, name: &str, change: impl Fn(&mut Value)) {
    let map = maps.get_mut(name).expect(name);
    let mut value = parse(map.template.as_deref().expect("a template")).expect("JSON");
    change(&mut value);
    map.template = Some(value.to_string());
}

fn said(mode: &str, found: &Found) -> Option<Result<String, String>> {
    upgrade(&spec(mode), found, &shipped().expect("what is shipped"), "registry")
}

#[test]
fn d2_an_upgrade_builds_what_has_an_older_version() {
    let verify = "convoke-step-verify";
    assert_eq!(said("dev", &live(|_| ())), None);
    for (version, shown) in [(Some("0"), "0"), (None, "none")] {
        let found = live(|maps| step(maps, verify, version));
        let why = format!("the pipeline template changes: step verify {shown} → 1");
        assert_eq!(said("dev", &found), Some(Ok(why)));
    }
    // Somebody's own version, and a newer one, stay. So does a text of the same version.
    for version in ["2", "1-own"] {
        assert_eq!(said("dev", &live(|maps| step(maps, verify, Some(version)))), None);
    }
    let comment = live(|maps| {
        let map = maps.get_mut(verify).expect(verify);
        map.step.task_spec = map.step.task_spec.take().map(|text| format!("# one more\n{text}"));
    });
    assert_eq!(said("dev", &comment), None);
    // A step that does not run changes no image.
    let append = live(|maps| step(maps, "convoke-step-append", Some("0")));
    assert_eq!(said("dev", &append), None);
    // What the namespace has of its own stays.
    let own = live(|maps| {
        step(maps, verify, None);
        maps.get_mut(verify).expect(verify).side = Side::Own;
    });
    assert_eq!(said("dev", &own), None);
}

#[test]
fn d2_an_upgrade_of_a_template_keeps_its_values() {
    let name = "pipeline-template-preprod";
    let older = |value: &mut Value| {
        value["version"] = "0".into();
        let steps = value["steps"].as_array_mut().expect("steps");
        steps.retain(|step| step["name"] != "verify");
    };
    let database = |value: &mut Value| {
        let list = value["globalParameters"].as_array_mut().expect("parameters");
        for one in list.iter_mut().filter(|one| one["name"] == "vulnerability-database-image") {
            one["value"] = "osv:1".into();
        }
    };
    // It cannot be used before: nothing is said of an upgrade.
    assert_eq!(said("preprod", &live(|maps| template(maps, name, older))), None);
    let found = live(|maps| {
        template(maps, name, older);
        template(maps, name, database);
    });
    let why = "the pipeline template changes: template preprod 0 → 2, step verify is new";
    assert_eq!(said("preprod", &found), Some(Ok(why.to_owned())));
    // The version of somebody's own.
    let own = live(|maps| {
        template(maps, name, older);
        template(maps, name, database);
        template(maps, name, |value| value["version"] = "mine".into());
    });
    assert_eq!(said("preprod", &own), None);
    // A parameter that the shipped steps do not take.
    let unknown = live(|maps| {
        template(maps, "pipeline-template-dev", |value| {
            value["version"] = "0".into();
            let list = value["globalParameters"].as_array_mut().expect("parameters");
            list.push(serde_json::json!({"name": "depth", "value": "1"}));
        });
        let map = maps.get_mut("convoke-step-verify").expect("verify");
        let text = map.step.task_spec.take().expect("a TaskSpec");
        let more = "params:\n  - {name: depth, default: \"0\"}\n";
        map.step.task_spec = Some(text.replacen("params:\n", more, 1));
        map.step.version = Some("0".to_owned());
    });
    let error = said("dev", &unknown).expect("another pipeline").expect_err("it cannot be used");
    assert!(error.contains("depth"), "{error}");
}
