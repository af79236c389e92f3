use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;

fn spec(patch: Value) -> AgentBuildSpec {
    let mut spec = json!({
        "source": {"gitSync": {}, "subfolder": "images/reviewer"},
        "output": {"image": "team/reviewer"},
        "buildArgs": {"A": "1", "B": "2"},
        "trigger": {"paths": ["shared", "lock.txt"]},
    });
    merge(&mut spec, patch);
    serde_json::from_value(spec).expect("a spec")
}

fn merge(into: &mut Value, patch: Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch,
    }
}

fn source() -> SourceAt {
    SourceAt {
        sync: "team".into(),
        url: "https://git.example.com/team.git".into(),
        commit: "a".repeat(40),
        subfolder_tree: Some("1".repeat(40)),
        paths: BTreeMap::from([("shared".into(), Some("2".repeat(40))), ("lock.txt".into(), None)]),
        dockerfile: None,
        base_images: BTreeMap::new(),
        applied: None,
    }
}

/// A change that appends to a base image.
fn append(patch: Value) -> Value {
    let mut append = json!({"baseImage": "python:3.13"});
    merge(&mut append, patch);
    json!({"strategy": "Append", "append": append})
}

fn key(patch: Value) -> BuildKey {
    build_key(&spec(patch), &source(), "registry:5000", "t", None).expect("a key")
}

#[test]
fn b1_what_does_not_go_into_the_image_keeps_the_key() {
    let base = key(json!({}));
    for patch in [
        json!({"output": {"tag": "{commit}"}}),
        json!({"timeout": "1h"}),
        json!({"retryLimit": 0, "history": {"successful": 1, "failed": 0}}),
        json!({"trigger": {"onCommit": false}}),
        json!({"trigger": {"paths": ["lock.txt", "shared", "shared"]}}),
        json!({"layerCache": false}),
        // The registry that counts is the resolved one.
        json!({"output": {"registry": "registry:5000"}}),
    ] {
        assert_eq!(key(patch.clone()), base, "{patch}");
    }
    let mut elsewhere = source();
    elsewhere.commit = "b".repeat(40);
    elsewhere.url = "https://mirror.example.com/team.git".into();
    elsewhere.sync = "other".into();
    elsewhere.paths.insert("unrelated".into(), Some("9".repeat(40)));
    let moved = build_key(&spec(json!({})), &elsewhere, "registry:5000", "t", None).expect("a key");
    assert_eq!(moved, base);
}

#[test]
fn b1_what_goes_into_the_image_changes_the_key() {
    let mut keys = BTreeSet::new();
    let mut add = |key: BuildKey, what: &str| {
        assert!(keys.insert(key.to_string()), "{what} has no own key");
    };
    add(key(json!({})), "the base");
    add(key(json!({"layerCache": true})), "a cache of layers");
    for patch in [
        json!({"source": {"subfolder": "images"}}),
        json!({"dockerfile": "Containerfile"}),
        json!({"buildArgs": {"A": "2"}}),
        json!({"buildArgs": {"C": ""}}),
        json!({"output": {"image": "team/writer"}}),
        json!({"output": {"insecure": true}}),
        json!({"trigger": {"paths": ["shared"]}}),
        json!({"trigger": {"paths": []}}),
        append(json!({})),
        append(json!({"baseImage": "python:3.14"})),
        append(json!({"into": "/opt"})),
        append(json!({"command": ["ab"]})),
        append(json!({"command": ["a", "b"]})),
        append(json!({"user": "1000"})),
        append(json!({"lockFile": "requirements.txt"})),
        append(json!({"lockFile": "sub/requirements.txt"})),
        append(json!({"platform": "linux/arm64"})),
        append(json!({"platform": "linux/amd64"})),
    ] {
        add(key(patch.clone()), &patch.to_string());
    }
    let base = spec(json!({}));
    let with = |change: &dyn Fn(&mut SourceAt)| {
        let mut source = source();
        change(&mut source);
        build_key(&base, &source, "registry:5000", "t", None).expect("a key")
    };
    add(with(&|s| s.subfolder_tree = Some("3".repeat(40))), "another tree");
    add(
        with(&|s| drop(s.paths.insert("shared".into(), Some("4".repeat(40))))),
        "another tree of a path",
    );
    add(with(&|s| drop(s.paths.insert("shared".into(), None))), "a path that is gone");
    add(with(&|s| drop(s.paths.insert("lock.txt".into(), Some("5".repeat(40))))), "a new path");
    add(build_key(&base, &source(), "other:5000", "t", None).expect("a key"), "another registry");
    add(
        build_key(&base, &source(), "registry:5000", "u", None).expect("a key"),
        "another template",
    );
    let rebuilt = |nonce| build_key(&base, &source(), "registry:5000", "t", Some(nonce));
    add(rebuilt("").expect("a key"), "a rebuild without a word");
    add(rebuilt("1").expect("a key"), "a rebuild");
    add(rebuilt("2").expect("a key"), "another rebuild");
}

#[test]
fn b1_no_two_splits_of_the_same_characters_collide() {
    let args = |pairs: &[(&str, &str)]| {
        let args: BTreeMap<_, _> = pairs.iter().copied().collect();
        let mut spec = spec(json!({}));
        spec.build_args = args.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        build_key(&spec, &source(), "registry:5000", "t", None).expect("a key").to_string()
    };
    let splits: &[&[(&str, &str)]] = &[
        &[],
        &[("", "")],
        &[("A", "BC")],
        &[("AB", "C")],
        &[("ABC", "")],
        &[("A", ""), ("B", "C")],
        &[("A", "B"), ("C", "")],
        &[("A", "B=C")],
        &[("A=B", "C")],
        &[("A", "nameBvalueC")],
    ];
    let keys: BTreeSet<_> = splits.iter().map(|pairs| args(pairs)).collect();
    assert_eq!(keys.len(), splits.len());
    let neighbours = [("r", "ot"), ("ro", "t"), ("rot", "")].map(|(registry, template)| {
        build_key(&spec(json!({})), &source(), registry, template, None).expect("a key").to_string()
    });
    assert_eq!(BTreeSet::from(neighbours).len(), 3);
}

#[test]
fn b5_a_missing_subfolder_has_its_own_reason() {
    let mut source = source();
    source.subfolder_tree = None;
    let error = build_key(&spec(json!({})), &source, "r", "t", None).expect_err("no key");
    assert_eq!(error.to_string(), "commit aaaaaaaaaaaa has no folder images/reviewer");
}

#[test]
fn b1_the_encoding_is_stable() {
    // A change of this value builds every image of every cluster anew: change VERSION, and say so.
    insta::assert_snapshot!(key(json!({})).as_str(), @"f87717fca4379208760458f77b38297b75d5163e563e589c712f7a7b8c662500");
    insta::assert_snapshot!(key(append(json!({}))).as_str(), @"75cb74626dc74f5faacfb3efa478ddabfa936084122057dfca57fcee5983d286");
}

#[test]
fn b1_the_digests_of_the_base_images_of_a_dockerfile_are_in_the_key() {
    let spec = spec(json!({"trigger": {"baseImage": true}}));
    let key = |images: &[(&str, &str)]| {
        let one = |(word, image): &(&str, &str)| ((*word).to_owned(), (*image).to_owned());
        let source = SourceAt { base_images: images.iter().map(one).collect(), ..source() };
        build_key(&spec, &source, "registry:5000", "t", None).expect("a key")
    };
    // That they are followed changes nothing while there are none.
    assert_eq!(key(&[]), self::key(json!({})));
    let all = [
        key(&[]),
        key(&[("a:1", "a@sha256:1")]),
        key(&[("a:1", "a@sha256:2")]),
        key(&[("b:1", "a@sha256:1")]),
        key(&[("a:1", "a@sha256:1"), ("b:1", "a@sha256:1")]),
    ];
    let different: BTreeSet<_> = all.iter().map(BuildKey::as_str).collect();
    assert_eq!(different.len(), all.len());
}
