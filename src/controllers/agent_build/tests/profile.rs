use super::*;

const BUILD: &str = include_str!("../../../../deploy/pipelines/step-build.yaml");
const TEST: &str = include_str!("../../../../deploy/pipelines/step-test.yaml");

/// A shipped step: its TaskSpec, and what it says of profiles.
fn shipped(step: &str) -> (Value, String) {
    let map: Value = serde_saphyr::from_str(step).expect("a ConfigMap");
    let text = |key: &str| map["data"][key].as_str().expect("a text").to_owned();
    let task_spec =
        serde_saphyr::from_str(&text(crate::controllers::agent_build::template::STEP_KEY));
    (task_spec.expect("a TaskSpec"), text(PROFILES_KEY))
}

fn applied(profile: BuildProfile, changes: &str) -> Result<Value, Vec<String>> {
    let spec = json!({"steps": [
        {"name": "a", "securityContext": {"runAsUser": 5}},
        {"name": "b", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}], "securityContext": {"runAsUser": 0}},
    ]});
    StepProfile { profile, changes: changes.to_owned() }.applied(&spec)
}

#[test]
fn b3_profiles_have_names() {
    for (profile, name) in NAMES {
        assert_eq!(name.parse(), Ok(profile));
        assert_eq!(profile.to_string(), name);
    }
    assert_eq!(BuildProfile::default(), BuildProfile::Baseline);
    let error = "root".parse::<BuildProfile>().expect_err("there is none");
    assert_eq!(error, "must be one of baseline, userns, rootless, privileged");
    assert_eq!(StepProfile::new(BuildProfile::Baseline, Some("userns: []".into())), None);
    assert_eq!(StepProfile::new(BuildProfile::Userns, None), None);
}

#[test]
fn b3_a_profile_replaces_the_context_of_its_steps_and_nothing_else() {
    let changes = "
rootless:
  - name: b
    securityContext: {runAsUser: 1000, seccompProfile: {type: Unconfined}}
    env: [{name: Y, value: three}, {name: Z, value: ''}]
privileged: []
";
    let have = applied(BuildProfile::Rootless, changes).expect("applied");
    let env = json!([{"name": "X", "value": "1"}, {"name": "Y", "value": "three"}, {"name": "Z", "value": ""}]);
    let context = json!({"runAsUser": 1000, "seccompProfile": {"type": "Unconfined"}});
    assert_eq!(
        have,
        json!({"steps": [
            {"name": "a", "securityContext": {"runAsUser": 5}},
            {"name": "b", "env": env, "securityContext": context},
        ]})
    );
    let same = applied(BuildProfile::Privileged, changes).expect("applied");
    assert_eq!(same["steps"][1]["securityContext"], json!({"runAsUser": 0}));
}

#[test]
fn b3_what_a_profile_must_not_say_is_told_with_its_place() {
    let of = |profile: BuildProfile, context: &str| {
        applied(profile, &format!("{profile}: [{{name: b, securityContext: {context}}}]"))
            .expect_err("refused")
    };
    for (profile, context, place) in [
        (BuildProfile::Userns, "{privileged: true}", "privileged"),
        (BuildProfile::Rootless, "{runAsUser: 1000, privileged: true}", "privileged"),
        (BuildProfile::Privileged, "{privileged: 'true'}", "privileged"),
        (
            BuildProfile::Userns,
            "{capabilities: {add: [SETFCAP, SYS_PTRACE]}}",
            "capabilities.add[1]",
        ),
        (
            BuildProfile::Rootless,
            "{runAsUser: 1000, capabilities: {add: [SYS_ADMIN]}}",
            "capabilities.add[0]",
        ),
        (BuildProfile::Privileged, "{capabilities: {add: [SYS_ADMIN]}}", "capabilities.add[0]"),
        (BuildProfile::Userns, "{seccompProfile: {type: Unconfined}}", "seccompProfile.type"),
        (BuildProfile::Privileged, "{appArmorProfile: {type: Unconfined}}", "appArmorProfile.type"),
        (BuildProfile::Rootless, "{runAsUser: 0}", "runAsUser"),
        (BuildProfile::Rootless, "{}", "runAsUser"),
        (BuildProfile::Rootless, "{runAsUser: 1000, procMount: Unmasked}", "procMount"),
    ] {
        let said = of(profile, context);
        let want = format!("{PROFILES_KEY}: {profile}: b.securityContext.{place}: ");
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with(&want), "{said:?}");
    }
    for (changes, want) in [
        ("rootless: []", "profiles.yaml has no profile userns"),
        ("userns: [{name: c, securityContext: {}}]", "profiles.yaml: userns: no step c"),
        ("userns: [{name: b}]", "profiles.yaml: "),
        ("userns: [{name: b, securityContext: {}, hostUsers: false}]", "profiles.yaml: "),
        ("userns: []\nroot: []", "profiles.yaml: "),
    ] {
        let said = applied(BuildProfile::Userns, changes).expect_err(changes);
        assert!(said.len() == 1 && said[0].starts_with(want), "{said:?}");
    }
}

/// The security context that each profile gives to the one step of a shipped step. Nothing else may change.
fn contexts(step: &str) -> BTreeMap<&'static str, Value> {
    let (spec, changes) = shipped(step);
    let mut contexts = BTreeMap::new();
    for (profile, name) in NAMES {
        let own = StepProfile::new(profile, Some(changes.clone()));
        let mut have = own.map_or(spec.clone(), |own| own.applied(&spec).expect("applied"));
        contexts.insert(name, have["steps"][0]["securityContext"].take());
        let mut without = spec.clone();
        without["steps"][0]["securityContext"] = Value::Null;
        assert_eq!(have, without, "{name}");
    }
    contexts
}

#[test]
fn b3_the_shipped_profiles_change_how_a_dockerfile_is_run_and_not_what() {
    let unconfined = json!({"type": "Unconfined"});
    assert_eq!(
        json!(contexts(BUILD)),
        json!({
            "baseline": {"runAsUser": 0, "capabilities": {"add": ["SETFCAP"]}},
            "userns": {"runAsUser": 0, "capabilities": {"add": ["SETFCAP", "SYS_ADMIN"]}, "appArmorProfile": unconfined},
            "rootless": {
                "runAsUser": 1000, "runAsGroup": 1000, "allowPrivilegeEscalation": true,
                "capabilities": {"add": ["SETUID", "SETGID"]},
                "seccompProfile": unconfined, "appArmorProfile": unconfined,
            },
            "privileged": {"runAsUser": 0, "privileged": true},
        })
    );
}

#[test]
fn b3_an_image_is_tested_in_the_way_in_which_it_is_built() {
    let (build, mut test) = (contexts(BUILD), contexts(TEST));
    // The command becomes no other user where nothing needs that.
    for name in ["baseline", "userns"] {
        let context = test.get_mut(name).and_then(Value::as_object_mut).expect("a context");
        assert_eq!(context.remove("allowPrivilegeEscalation"), Some(false.into()), "{name}");
    }
    assert_eq!(test, build);
}
