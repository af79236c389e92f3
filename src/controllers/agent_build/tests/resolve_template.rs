use super::super::template::parse;
use super::*;

const NO_ARGS: Inputs<'_> = Inputs {
    build_args: BuildArgs::None,
    overrides: &Overrides::NONE,
    operator_image: "convoke:1",
};
const TASK: &str = "
params:
  - {name: image, type: string}
  - {name: level, default: low}
  - {name: build-args, type: array, default: []}
workspaces:
  - name: source
  - {name: push-auth, optional: true}
results:
  - name: IMAGE_DIGEST
steps:
  - name: build
    image: builder
    script: echo hello
";

fn step(task_spec: &str) -> BTreeMap<String, StepSource> {
    BTreeMap::from([(
        "cm".into(),
        StepSource {
            labelled: true,
            task_spec: Some(task_spec.into()),
            version: None,
            profile: None,
        },
    )])
}

fn template(patch: &Value) -> Template {
    let mut template = json!({"name": "t", "steps": [{"name": "build", "configMap": "cm"}]});
    for (key, value) in patch.as_object().expect("a map") {
        template[key] = value.clone();
    }
    parse("pipeline-template-t", Some(&template.to_string())).expect("a template")
}

fn reasons(template: &Template, sources: &BTreeMap<String, StepSource>) -> Vec<String> {
    let errors = resolve(template, sources, "team", NO_ARGS).expect_err("problems");
    errors.iter().map(|error| format!("{}: {error}", error.reason())).collect()
}

fn one(patch: &Value, task_spec: &str) -> ResolvedStep {
    let resolved = resolve(&template(patch), &step(task_spec), "team", NO_ARGS).expect("resolved");
    resolved.steps.into_iter().next().expect("a step")
}

fn text(value: &str) -> Bound {
    Bound::Template(ParameterValue::Text(value.into()))
}

#[test]
fn b4_precedence_default_then_global_then_step_then_spec() {
    let default = one(&json!({}), TASK);
    assert_eq!(default.parameters.get("level"), None, "left to the TaskSpec");
    let global = json!({"globalParameters": [{"name": "level", "value": "middle"}]});
    assert_eq!(one(&global, TASK).parameters["level"], text("middle"));
    let both = json!({
        "globalParameters": [{"name": "level", "value": "middle"}, {"name": "image", "value": "evil"}],
        "steps": [{"name": "build", "configMap": "cm", "parameters": [{"name": "level", "value": "high"}]}],
    });
    let both = one(&both, TASK);
    assert_eq!(both.parameters["level"], text("high"));
    assert_eq!(both.parameters["image"], Bound::Spec, "a template can't redirect the image");
    assert!(both.stage.workspaces.contains_key("source"));
}

#[test]
fn b4_unknown_and_missing_parameters_are_errors_by_name() {
    let own = template(
        &json!({"steps": [{"name": "build", "configMap": "cm", "parameters": [{"name": "levle", "value": "x"}]}]}),
    );
    assert_eq!(reasons(&own, &step(TASK)), ["UnknownParameter: step build has no parameter levle"]);
    let global = template(&json!({"globalParameters": [{"name": "levle", "value": "x"}]}));
    assert_eq!(
        reasons(&global, &step(TASK)),
        ["UnknownParameter: template t has no parameter levle"]
    );
    let needs = TASK.replace("level, default: low", "level");
    assert_eq!(
        reasons(&template(&json!({})), &step(&needs)),
        ["MissingParameter: step build needs a value for parameter level"]
    );
    let required = template(
        &json!({"requiredParameters": ["image", "scanner"], "globalParameters": [{"name": "level", "value": ""}]}),
    );
    assert_eq!(
        reasons(&required, &step(TASK)),
        ["MissingParameter: template t needs a value for parameter scanner"]
    );
    let no_args = TASK.replace("  - {name: build-args, type: array, default: []}\n", "");
    let errors = resolve(
        &template(&json!({})),
        &step(&no_args),
        "team",
        Inputs { build_args: BuildArgs::Given, ..NO_ARGS },
    )
    .expect_err("problems");
    assert_eq!(
        errors[0].to_string(),
        "spec.buildArgs is set, but template t has no parameter build-args"
    );
}

#[test]
fn b4_types_are_checked() {
    let list = template(&json!({"globalParameters": [{"name": "level", "value": ["a"]}]}));
    assert_eq!(
        reasons(&list, &step(TASK)),
        ["WrongParameterType: step build: parameter level must be of type string"]
    );
    let text = TASK.replace("build-args, type: array, default: []", "build-args");
    assert_eq!(
        reasons(&template(&json!({})), &step(&text)),
        ["WrongParameterType: step build: parameter build-args must be of type string"]
    );
    let unsafe_value =
        template(&json!({"globalParameters": [{"name": "level", "value": "$(TOKEN)"}]}));
    assert_eq!(
        reasons(&unsafe_value, &step(TASK)),
        ["UnsafeValue: step build: the value of parameter level must not contain \"$(\" or \"$$\""]
    );
}

#[test]
fn b3_what_is_missing_is_named() {
    let template = template(&json!({}));
    assert_eq!(
        reasons(&template, &BTreeMap::new()),
        ["StepNotFound: step build: no ConfigMap cm in team"]
    );
    let mut unlabelled = step(TASK);
    unlabelled.get_mut("cm").expect("there").labelled = false;
    assert_eq!(
        reasons(&template, &unlabelled),
        ["StepNotAllowed: step build: ConfigMap cm lacks the label convoke.dev/step: \"true\""]
    );
    let empty =
        BTreeMap::from([("cm".to_owned(), StepSource { labelled: true, ..StepSource::default() })]);
    assert_eq!(
        reasons(&template, &empty),
        ["StepInvalid: step build: its ConfigMap has no key task-spec.yaml"]
    );
    assert_eq!(
        reasons(&template, &step("params: []")),
        ["StepInvalid: step build: task-spec.yaml is no TaskSpec: it has no steps"]
    );
    assert!(
        reasons(&template, &step("steps: [}"))[0]
            .starts_with("StepInvalid: step build: task-spec.yaml: ")
    );
    let undigested = TASK.replace("IMAGE_DIGEST", "OTHER");
    assert_eq!(
        reasons(&template, &step(&undigested)),
        ["NoDigestResult: no step has the result IMAGE_DIGEST"]
    );
}

#[test]
fn b3_every_task_spec_passes_the_allow_list() {
    let privileged = TASK.replace(
        "    image: builder",
        "    image: builder\n    securityContext: {privileged: true}",
    );
    assert_eq!(
        reasons(&template(&json!({})), &step(&privileged)),
        [
            "PodNotAllowed: step build: steps[0].securityContext.privileged: privileged containers are not allowed"
        ]
    );
    // YAML's old booleans are texts, so they can't slip past a check for `false`.
    let yes = TASK.replace(
        "    image: builder",
        "    image: builder\n    securityContext: {privileged: yes}",
    );
    assert_eq!(reasons(&template(&json!({})), &step(&yes)).len(), 1);
}

#[test]
fn b5_credentials_never_meet_and_are_optional() {
    let both =
        TASK.replace("  - name: source", "  - name: source\n  - {name: git-auth, optional: true}");
    assert_eq!(
        reasons(&template(&json!({})), &step(&both)),
        ["WorkspacesNotIsolated: step build: git-auth and push-auth must not meet in one step"]
    );
    let needed = TASK.replace(", optional: true", "");
    assert_eq!(
        reasons(&template(&json!({})), &step(&needed)),
        ["MissingWorkspace: step build: workspace push-auth is not there"]
    );
}

#[test]
fn b3_all_problems_come_at_once() {
    let template = template(&json!({
        "requiredParameters": ["scanner"],
        "steps": [{"name": "a", "configMap": "x"}, {"name": "b", "configMap": "y"}, {"name": "c", "configMap": "z", "enabled": false}],
    }));
    assert_eq!(reasons(&template, &BTreeMap::new()).len(), 3);
}

#[test]
fn b1_the_hash_covers_steps_parameters_and_conditions() {
    let hash = |patch: &Value, task: &str| {
        resolve(&template(patch), &step(task), "team", NO_ARGS)
            .expect("resolved")
            .hash("t", |_| true)
    };
    let base = hash(&json!({}), TASK);
    assert_eq!(
        hash(&json!({"name": "other", "description": "x"}), TASK),
        base,
        "names for people don't count"
    );
    assert_eq!(hash(&json!({}), &format!("# a comment\n{TASK}")), base);
    let when = json!([{"input": "$(params.insecure)", "operator": "in", "values": ["false"]}]);
    let changed = [
        hash(&json!({}), &TASK.replace("hello", "world")),
        hash(&json!({"globalParameters": [{"name": "level", "value": "low"}]}), TASK),
        hash(&json!({"globalParameters": [{"name": "level", "value": "high"}]}), TASK),
        hash(&json!({"when": when}), TASK),
        hash(&json!({"steps": [{"name": "make", "configMap": "cm"}]}), TASK),
    ];
    let all: BTreeSet<_> = changed.iter().chain([&base]).collect();
    assert_eq!(all.len(), 6);
}

#[test]
fn b1_a_declared_version_counts_instead_of_the_text() {
    let hash = |patch: &Value, task: &str, version: Option<&str>| {
        let mut sources = step(task);
        sources.get_mut("cm").expect("there").version = version.map(str::to_owned);
        let resolved = resolve(&template(patch), &sources, "team", NO_ARGS).expect("resolved");
        resolved.hash("t", |_| true)
    };
    let other = TASK.replace("hello", "world");
    let (none, level) =
        (json!({}), json!({"globalParameters": [{"name": "level", "value": "high"}]}));
    let versioned = |version: &str, patch: &Value| {
        let mut patch = patch.clone();
        patch["version"] = version.into();
        patch
    };
    // The step declares one.
    assert_eq!(hash(&none, TASK, Some("1")), hash(&none, &other, Some("1")));
    assert_ne!(hash(&none, TASK, Some("1")), hash(&none, TASK, Some("2")));
    assert_ne!(hash(&none, TASK, Some("1")), hash(&none, TASK, None));
    assert_ne!(hash(&none, TASK, Some("1")), hash(&level, TASK, Some("1")), "the template's text");
    // The template declares one.
    let (first, second) = (versioned("1", &none), versioned("2", &none));
    assert_eq!(hash(&first, TASK, Some("1")), hash(&versioned("1", &level), TASK, Some("1")));
    assert_ne!(hash(&first, TASK, Some("1")), hash(&second, TASK, Some("1")));
    assert_ne!(hash(&first, TASK, None), hash(&first, &other, None), "the text of its step");
    // A copy of a template or of a step is another one, whatever version it declares.
    let mut sources = step(TASK);
    sources.get_mut("cm").expect("there").version = Some("1".into());
    sources.insert("copy".into(), sources["cm"].clone());
    let of = |patch: &Value, mode: &str| {
        let resolved = resolve(&template(patch), &sources, "team", NO_ARGS).expect("resolved");
        resolved.hash(mode, |_| true)
    };
    let copy = json!({"version": "1", "steps": [{"name": "build", "configMap": "copy"}]});
    assert_ne!(of(&first, "t"), of(&first, "prod"));
    assert_ne!(of(&first, "t"), of(&copy, "t"));
    for wrong in ["", "a b", "ä", &"1".repeat(65)] {
        let text =
            versioned(wrong, &json!({"name": "t", "steps": [{"name": "a", "configMap": "cm"}]}));
        assert!(parse("pipeline-template-t", Some(&text.to_string())).is_err(), "{wrong}");
        let mut sources = step(TASK);
        sources.get_mut("cm").expect("there").version = Some(wrong.to_owned());
        assert_eq!(reasons(&template(&none), &sources).len(), 1, "{wrong}");
    }
}

#[test]
fn b12_whether_images_are_attested_is_part_of_the_key_with_a_version_too() {
    let of =
        |patch: &Value| resolve(&template(patch), &step(TASK), "team", NO_ARGS).expect("resolved");
    for version in [json!(null), json!("1")] {
        let plain = of(&json!({"version": version}));
        let attested = of(&json!({"version": version, "provenance": true}));
        assert!(attested.provenance && !plain.provenance);
        assert_ne!(attested.hash("t", |_| true), plain.hash("t", |_| true));
        let said = of(&json!({"version": version, "provenance": false}));
        assert_eq!(said.hash("t", |_| true), plain.hash("t", |_| true), "as without the field");
    }
    let wrong =
        json!({"name": "t", "steps": [{"name": "a", "configMap": "cm"}], "provenance": "yes"});
    assert!(parse("pipeline-template-t", Some(&wrong.to_string())).is_err());
}

#[test]
fn b3_the_image_of_the_operator_is_used_unless_the_template_names_one() {
    let task = TASK.replace("params:", "params:\n  - name: convoke-image");
    let resolved = |patch: &Value, operator_image: &str| {
        let inputs = Inputs { operator_image, ..NO_ARGS };
        resolve(&template(patch), &step(&task), "team", inputs)
    };
    let bound = |resolved: ResolvedTemplate| resolved.steps[0].parameters["convoke-image"].clone();
    let required = json!({"requiredParameters": ["convoke-image"]});
    let of_operator = resolved(&required, "convoke:1").expect("resolved");
    assert_eq!(bound(of_operator.clone()), Bound::Operator("convoke:1".into()));
    let upgraded = resolved(&required, "convoke:2").expect("resolved");
    assert_eq!(
        of_operator.hash("t", |_| true),
        upgraded.hash("t", |_| true),
        "an upgrade rebuilds nothing"
    );
    let own = json!({"globalParameters": [{"name": "convoke-image", "value": "mine"}]});
    assert_eq!(bound(resolved(&own, "convoke:1").expect("resolved")), text("mine"));
}

#[test]
fn b3_conditions_ask_for_what_is_known_and_the_same_for_the_same_source() {
    let when = |input: &str| {
        template(&json!({
            "when": [{"input": input, "operator": "in", "values": ["x"]}],
            "globalParameters": [{"name": "level", "value": "high"}],
        }))
    };
    let resolved = resolve(&when("$(params.level)/$(params.insecure)"), &step(TASK), "t", NO_ARGS);
    assert_eq!(resolved.expect("resolved").steps[0].when[0].input, "high/$(params.insecure)");
    for (input, said) in [
        ("$(tasks.clone.results.commit)", "it is known before the build begins"),
        ("$(params.revision)", "not for revision"),
        ("$(params.tag)", "not for tag"),
        ("$(params.repo-url)", "not for repo-url"),
        ("$$(params.level)", "must not contain"),
        ("$(params.levle)", "not for levle"),
    ] {
        let errors = reasons(&when(input), &step(TASK));
        assert!(errors[0].starts_with("WhenInvalid: step build: when: "), "{errors:?}");
        assert!(errors[0].contains(said), "{errors:?}");
    }
}

#[test]
fn b3_steps_that_cannot_be_in_one_pod_are_named() {
    let two = |one: &str, other: &str, first: &str, second: &str| {
        let steps = [one, other].map(|name| json!({"name": name, "configMap": name}));
        let source = |task: &str| StepSource {
            labelled: true,
            task_spec: Some(task.into()),
            version: None,
            profile: None,
        };
        let sources =
            BTreeMap::from([(one.to_owned(), source(first)), (other.to_owned(), source(second))]);
        reasons(&template(&json!({"steps": steps})), &sources)
    };
    let list = TASK.replace("- name: IMAGE_DIGEST", "- {name: IMAGE_DIGEST, type: array}");
    let said = two("one", "two", TASK, &list);
    let each = "each has a result IMAGE_DIGEST of its own";
    assert_eq!(said, [format!("StepsDisagree: steps one and two cannot be in one pod: {each}")]);
    let both = "{steps: [{name: b, image: x}, {name: c-d, image: x}]}";
    let digest =
        "{results: [{name: IMAGE_DIGEST}], steps: [{name: d, image: x}, {name: e, image: x}]}";
    let said = two("a-b", "a-b-c", both, digest);
    assert_eq!(
        said,
        [
            "StepsDisagree: steps a-b and a-b-c cannot be in one pod: each has a step a-b-c-d of its own"
        ]
    );
}

#[test]
fn b3_one_step_fills_the_workspace_after_the_build_and_the_last_result_counts() {
    let fills = "workspaces: [{name: source}, {name: after-build}]\nsteps: [{name: c, image: i}]\n";
    let from = |step: &str| {
        let value = format!("$(steps.{step}.results.IMAGE_DIGEST)");
        json!({"results": [{"name": "IMAGE_DIGEST", "value": value}], "steps": [{"name": step, "image": "i"}]}).to_string()
    };
    let mut sources = step(fills);
    for (name, text) in [("one", from("p")), ("two", from("q"))] {
        sources.extend(step(&text).into_values().map(|source| (name.to_owned(), source)));
    }
    let named = |names: &[(&str, &str)]| {
        let steps: Vec<_> =
            names.iter().map(|(name, map)| json!({"name": name, "configMap": map})).collect();
        template(&json!({"steps": steps}))
    };
    let good = named(&[("copy", "cm"), ("one", "one"), ("two", "two")]);
    let resolved = resolve(&good, &sources, "team", NO_ARGS).expect("resolved");
    let value = |at: usize| resolved.steps[at].stage.results["IMAGE_DIGEST"]["value"].clone();
    assert_eq!(
        (value(1), value(2)),
        (json!("$(steps.one.results.IMAGE_DIGEST)"), json!("$(steps.two.results.IMAGE_DIGEST)"))
    );
    let twice = named(&[("copy", "cm"), ("again", "cm"), ("one", "one")]);
    let want = "StepsDisagree: steps copy and again cannot be in one pod: each has a workspace after-build of its own";
    assert_eq!(reasons(&twice, &sources), [want]);
}
