use serde_json::json;

use super::*;

fn base(layers: usize) -> Base {
    let one = |text: &str| Descriptor { digest: Digest::of(text.as_bytes()), size: 5 };
    let layers = (0..layers).map(|number| (LAYER, one(&number.to_string()))).collect();
    Base { config: one("config"), layers }
}

fn below(config: &Value, layers: usize) -> Result<(Value, Base), String> {
    let diff_ids: Vec<_> = (0..layers).map(|number| format!("sha256:{number}")).collect();
    let history: Vec<_> = diff_ids.iter().map(|_| json!({})).collect();
    let written =
        json!({"rootfs": {"diff_ids": diff_ids}, "history": history, "config": config, "x": 1});
    let layer = Descriptor { digest: Digest::of(b"layer"), size: 7 };
    let layer = (&layer, &Digest::of(b"tar"));
    let (bytes, base) =
        super::below(written.to_string().as_bytes(), &base(layers), layer, "/opt/p")?;
    Ok((serde_json::from_slice(&bytes).expect("JSON"), base))
}

#[test]
fn b11_packages_are_a_layer_on_top_that_python_finds() {
    let (config, with) = below(&json!({"User": "7"}), 2).expect("a configuration");
    assert_eq!(with.layers.len(), 3);
    assert_eq!(with.layers.last().expect("a layer").1.digest, Digest::of(b"layer"));
    assert_eq!(config["rootfs"]["diff_ids"][2], Digest::of(b"tar").to_string());
    assert_eq!(config["history"][2]["comment"], "/opt/p");
    assert_eq!((&config["x"], &config["config"]["User"]), (&json!(1), &json!("7")));
    let path = format!("PATH=/opt/p/bin:{DEFAULT_PATH}");
    assert_eq!(config["config"]["Env"], json!(["PYTHONPATH=/opt/p", path]));
}

#[test]
fn b11_what_the_base_image_has_of_paths_stays_behind_those_of_packages() {
    for (have, want) in [
        (json!(["A=1", "PATH=/x"]), json!(["A=1", "PATH=/opt/p/bin:/x", "PYTHONPATH=/opt/p"])),
        (json!(["PYTHONPATH=", "PATH=/x"]), json!(["PYTHONPATH=/opt/p", "PATH=/opt/p/bin:/x"])),
        (
            json!(["PYTHONPATH=/a:/b", "PATH=/x", "PATH=/y=z", "PATHS=/p"]),
            json!(["PYTHONPATH=/opt/p:/a:/b", "PATH=/x", "PATH=/opt/p/bin:/y=z", "PATHS=/p"]),
        ),
    ] {
        let (config, _) = below(&json!({"Env": have}), 1).expect("a configuration");
        assert_eq!(config["config"]["Env"], want);
    }
    let error = below(&json!({"Env": "A=1"}), 1).expect_err("no list");
    assert_eq!(error, "its configuration has an Env that is no list");
}

#[test]
fn b11_there_must_be_room_for_two_more_layers() {
    below(&json!({}), MAX_LAYERS - 2).expect("there is room");
    let error = below(&json!({}), MAX_LAYERS - 1).expect_err("no room");
    assert_eq!(error, "it has 511 layers, and the most below packages is 510");
}
