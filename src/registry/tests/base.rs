use super::*;

const OCI_INDEX: &str = ACCEPTED[1];
const DOCKER_MANIFEST: &str = ACCEPTED[2];

fn descriptor(media_type: &str, digit: &str, size: u64) -> Value {
    json!({"mediaType": media_type, "digest": format!("sha256:{}", digit.repeat(64)), "size": size})
}

fn platform(text: &str) -> Platform {
    text.parse().expect(text)
}

fn read(value: &Value, on: &str) -> Result<Found, String> {
    super::read(value.to_string().as_bytes(), &platform(on))
}

fn index(platforms: &[(&str, Value)]) -> Value {
    let one = |(digit, platform): &(&str, Value)| {
        let mut one = descriptor(MANIFEST, digit, 500);
        one["platform"] = platform.clone();
        one
    };
    json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": platforms.iter().map(one).collect::<Vec<_>>()})
}

fn base(layers: usize) -> Base {
    let one = |text: &str| Descriptor { digest: Digest::of(text.as_bytes()), size: 5 };
    let layers = (0..layers).map(|number| (LAYER, one(&number.to_string()))).collect();
    Base { config: one("config"), layers }
}

#[test]
fn b11_the_image_of_the_platform_is_taken_from_an_index() {
    let index = index(&[
        ("0", json!({"os": "unknown", "architecture": "unknown"})),
        ("1", json!({"os": "windows", "architecture": "amd64"})),
        ("2", json!({"os": "linux", "architecture": "arm", "variant": "v6"})),
        ("3", json!({"os": "linux", "architecture": "arm", "variant": "v7"})),
        ("4", json!({"os": "linux", "architecture": "arm64", "variant": "v8"})),
        ("5", json!({"os": "linux", "architecture": "amd64"})),
        ("6", json!({"os": "linux", "architecture": "amd64", "variant": "v3"})),
    ]);
    for (on, digit) in [
        ("linux/amd64", "5"),
        ("linux/amd64/v3", "6"),
        ("linux/arm64", "4"),
        ("linux/arm64/v8", "4"),
        ("linux/arm/v7", "3"),
        ("linux/arm", "2"),
    ] {
        let Ok(Found::Elsewhere(found)) = read(&index, on) else { panic!("{on}") };
        assert_eq!(found.digest.hex(), digit.repeat(64), "{on}");
    }
    let error = read(&index, "linux/riscv64").expect_err("none");
    assert_eq!(
        error,
        "it has no image for linux/riscv64, but for: windows/amd64, linux/arm, linux/arm, linux/arm64, linux/amd64, linux/amd64"
    );
    for text in ["", "linux", "linux/", "windows/amd64", "linux/a/b/c", "linux/a b"] {
        assert!(text.parse::<Platform>().is_err(), "{text}");
    }
    assert!(Platform::here().to_string().starts_with("linux/"));
}

#[test]
fn b11_a_base_image_of_docker_becomes_one_of_oci() {
    let docker = "application/vnd.docker.image.rootfs.diff.tar.gzip";
    let config = descriptor("application/vnd.docker.container.image.v1+json", "c", 9);
    let written = json!({"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": config, "layers": [descriptor(docker, "a", 7), descriptor(LAYER, "b", 8)]});
    let Ok(Found::Image(base)) = read(&written, "linux/amd64") else { panic!("no image") };
    let reference: Reference = "r.example/base:1".parse().expect("a reference");
    let (config, layer) = (
        Descriptor { digest: Digest::of(b"config"), size: 10 },
        Descriptor { digest: Digest::of(b"layer"), size: 11 },
    );
    let made = manifest((&reference, &Digest::of(b"base")), &base, &config, &layer);
    // What is pushed is what this program itself would take.
    let read = super::super::manifest::manifest(&made).expect("a manifest");
    assert_eq!(read.config, config);
    assert_eq!(read.layers.iter().map(|one| one.size).collect::<Vec<_>>(), [7, 8, 11]);
    let made: Value = serde_json::from_slice(&made).expect("JSON");
    assert_eq!(made["layers"][0]["mediaType"], LAYER);
    assert_eq!(made["annotations"]["org.opencontainers.image.base.name"], "r.example/base:1");
    let digest = Digest::of(b"base").to_string();
    assert_eq!(made["annotations"]["org.opencontainers.image.base.digest"], digest);
}

#[test]
fn b11_what_is_no_base_image_is_refused() {
    let config = descriptor(CONFIG, "c", 9);
    let with = |layers: Value| json!({"schemaVersion": 2, "config": config, "layers": layers});
    let foreign = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
    let mut elsewhere = descriptor(LAYER, "a", 1);
    elsewhere["urls"] = json!(["https://x.example"]);
    let mut wrong = descriptor(LAYER, "a", 1);
    wrong["digest"] = json!("sha256:../x");
    let many: Vec<_> = (0..MAX_LAYERS).map(|_| descriptor(LAYER, "a", 1)).collect();
    let mut both = index(&[]);
    both["config"] = config.clone();
    both["layers"] = json!([]);
    let large = json!({"schemaVersion": 2, "config": descriptor(CONFIG, "c", MAX_CONFIG + 1), "layers": []});
    let nested = json!({"schemaVersion": 2, "manifests": [{"mediaType": OCI_INDEX, "digest": format!("sha256:{}", "a".repeat(64)), "size": 1, "platform": {"os": "linux", "architecture": "amd64"}}]});
    for (written, why) in [
        (json!({"schemaVersion": 1, "fsLayers": []}), "the schemaVersion is not 2"),
        (json!({"schemaVersion": 2}), "neither the manifest of an image nor an index"),
        (both, "neither the manifest of an image nor an index"),
        (with(json!([descriptor(foreign, "a", 1)])), "which is none of a layer"),
        (with(json!([elsewhere])), "layer 1 has `urls`"),
        (with(json!([wrong])), "64 lower-case hex digits"),
        (with(json!([descriptor(LAYER, "a", MAX_LAYER + 1)])), "and the most is"),
        (with(json!(many)), "it has 512 layers, and the most is 511"),
        (large, "its configuration has"),
        (nested, "it has no image for linux/amd64"),
        (json!([]), "invalid"),
    ] {
        let error = read(&written, "linux/amd64").expect_err(why);
        assert!(error.contains(why), "{error}: {why}");
    }
}

#[test]
fn b11_the_configuration_keeps_what_the_base_image_says() {
    let written = json!({
        "architecture": "amd64", "os": "linux", "created": "2026-01-01T00:00:00Z", "x-unknown": {"a": 1},
        "config": {"User": "1000", "Env": ["A=1"], "Entrypoint": ["/old"], "Cmd": ["x"], "WorkingDir": "/old"},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:1", "sha256:2"]},
        "history": [{"created_by": "a"}, {"created_by": "b", "empty_layer": true}, {"created_by": "c"}],
    });
    let change = |command: &[&str], user: Option<&str>| Change {
        into: "/app".into(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        user: user.map(str::to_owned),
    };
    let diff_id = Digest::of(b"layer");
    let made = |change: &Change| -> Value {
        let made = configuration(written.to_string().as_bytes(), &base(2), &diff_id, change);
        serde_json::from_slice(&made.expect("a configuration")).expect("JSON")
    };
    let mut want = written.clone();
    want["config"]["WorkingDir"] = json!("/app");
    want["rootfs"]["diff_ids"] = json!(["sha256:1", "sha256:2", diff_id.to_string()]);
    let entry =
        json!({"created": "2026-01-01T00:00:00Z", "created_by": CREATED_BY, "comment": "/app"});
    want["history"].as_array_mut().expect("a list").push(entry);
    assert_eq!(made(&change(&[], None)), want);
    want["config"]["Entrypoint"] = json!(["python", "-m", "x"]);
    want["config"].as_object_mut().expect("a map").remove("Cmd");
    want["config"]["User"] = json!("7:7");
    assert_eq!(made(&change(&["python", "-m", "x"], Some("7:7"))), want);
}

#[test]
fn b11_a_configuration_that_does_not_fit_is_refused() {
    let change = Change { into: "/app".into(), command: Vec::new(), user: None };
    let of = |written: &Value, layers| {
        configuration(written.to_string().as_bytes(), &base(layers), &Digest::of(b"x"), &change)
    };
    let rootfs = json!({"type": "layers", "diff_ids": ["sha256:1"]});
    for (written, why) in [
        (json!([]), "its configuration: "),
        (json!({}), "no rootfs.diff_ids"),
        (json!({"rootfs": {"diff_ids": "x"}}), "no rootfs.diff_ids"),
        (json!({"rootfs": {"diff_ids": []}}), "it has 1 layers, and its configuration knows 0"),
        (json!({"os": "windows", "rootfs": rootfs}), "it is not for Linux"),
        (json!({"config": [], "rootfs": rootfs}), "a config that is no object"),
    ] {
        let error = of(&written, 1).expect_err(why);
        assert!(error.contains(why), "{error}: {why}");
    }
    // The least that there is, with a history that is wrong already.
    let least = json!({"rootfs": rootfs, "history": [{}, {}], "config": null});
    let made: Value = serde_json::from_slice(&of(&least, 1).expect("made")).expect("JSON");
    assert_eq!(made["config"], json!({"WorkingDir": "/app"}));
    assert_eq!(made["history"], json!([{}, {}]));
}
