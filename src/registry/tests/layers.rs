use super::*;

fn id(seed: &str) -> Digest {
    Digest::of(seed.as_bytes())
}

fn config(layers: &[&str], env: &str) -> Vec<u8> {
    let ids: Vec<_> = layers.iter().map(|seed| id(seed).to_string()).collect();
    json!({"config": {"Env": [env]}, "rootfs": {"type": "layers", "diff_ids": ids}})
        .to_string()
        .into_bytes()
}

/// The manifest of an image whose layers are packed.
fn image(layers: &[&str]) -> Vec<u8> {
    let one = |seed: &&str| json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": id(&format!("{seed} packed")).to_string(), "size": seed.len()});
    let layers: Vec<_> = layers.iter().map(one).collect();
    json!({"schemaVersion": 2, "layers": layers}).to_string().into_bytes()
}

/// The manifest that an image has.
fn own_manifest(config: &[u8], layers: &[&str]) -> Vec<u8> {
    let one = |seed: &&str| json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": id(seed).to_string(), "size": 10});
    let layers: Vec<_> = layers.iter().map(one).collect();
    let config = json!({"mediaType": CONFIG, "digest": Digest::of(config).to_string(), "size": config.len()});
    json!({"schemaVersion": 2, "config": config, "layers": layers, "annotations": {"a": "b"}})
        .to_string()
        .into_bytes()
}

#[test]
fn b13_an_image_has_its_own_configuration_and_the_layers_of_others() {
    let mut pool = Pool::default();
    pool.add(&config(&["base", "run", "copy"], "LAST=1"), &image(&["base", "run", "copy"]))
        .expect("added");
    pool.add(&config(&["base", "compile"], ""), &image(&["base", "compile"])).expect("added");
    for layers in [&["base"][..], &["base", "run"], &["base", "compile"], &[]] {
        let own = config(layers, "FIRST=1");
        let plain = own_manifest(&own, layers);
        let made = pool.manifest(&own, &plain).expect("a configuration");
        let made = made.expect("all layers are there");
        let found = kept(&made).expect("one that is kept");
        assert_eq!(found.manifest, plain);
        let pairs = found.layers.iter().map(|(packed, plain)| (&packed.digest, &plain.digest));
        let wanted: Vec<_> =
            layers.iter().map(|it| (id(&format!("{it} packed")), id(it))).collect();
        assert!(pairs.eq(wanted.iter().map(|(packed, plain)| (packed, plain))), "{found:?}");
        let made = manifest::manifest(&made).expect("one that is pushed");
        assert_eq!(made.config, Descriptor { digest: Digest::of(&own), size: own.len() as u64 });
        let want: Vec<_> = layers.iter().map(|seed| id(&format!("{seed} packed"))).collect();
        assert_eq!(made.layers.iter().map(|it| it.digest.clone()).collect::<Vec<_>>(), want);
    }
    assert_eq!(pool.manifest(&config(&["base", "other"], ""), b"{}"), Ok(None));
    pool.manifest(b"{}", b"{}").expect_err("no configuration");
    let own = config(&["base"], "");
    pool.manifest(&own, b"{}").expect_err("no manifest");
    pool.manifest(&own, &own_manifest(&own, &["run"])).expect_err("another layer");
    let other = config(&["base"], "OTHER=1");
    pool.manifest(&own, &own_manifest(&other, &["base"])).expect_err("another configuration");
    kept(&own_manifest(&own, &["base"])).expect_err("it has no other manifest");
    pool.add(&config(&["base"], ""), &image(&["base", "run"])).expect_err("one layer too many");
    pool.add(b"[]", &image(&[])).expect_err("no configuration");
}

#[test]
fn b13_an_index_is_read_as_it_is_written_and_nothing_else_is() {
    let manifests = [image(&["a"]), image(&["b"])];
    let bytes = written(&manifests, "inputs\nbase");
    let read = index(&bytes).expect("an index");
    let want = |bytes: &Vec<u8>| Descriptor { digest: Digest::of(bytes), size: bytes.len() as u64 };
    assert_eq!(read.manifests, manifests.iter().map(want).collect::<Vec<_>>());
    assert_eq!(read.about, "inputs\nbase");
    assert_eq!(bytes, written(&manifests, "inputs\nbase"));

    let entry = |kind: &str, digest: &str, size: u64| json!({"schemaVersion": 2, "manifests": [{"mediaType": kind, "digest": digest, "size": size}]});
    let digest = id("x").to_string();
    let many = vec![json!({"mediaType": MANIFEST, "digest": digest, "size": 1}); MAX_IMAGES + 1];
    let large = vec![json!({"mediaType": MANIFEST, "digest": digest, "size": MAX_MANIFEST}); 5];
    let long = "x".repeat(usize::try_from(MAX_ABOUT).expect("small") + 1);
    for wrong in [
        json!({"schemaVersion": 1, "manifests": []}),
        json!({"schemaVersion": 2}),
        json!({"schemaVersion": 2, "manifests": many}),
        json!({"schemaVersion": 2, "manifests": large}),
        json!({"schemaVersion": 2, "manifests": [], "annotations": {ABOUT: long}}),
        entry(INDEX, &digest, 1),
        entry(MANIFEST, "sha256:../../x", 1),
        entry(MANIFEST, &digest, MAX_MANIFEST + 1),
    ] {
        index(wrong.to_string().as_bytes()).expect_err(&wrong.to_string());
    }
}

#[test]
fn b13_all_blobs_together_have_a_budget() {
    let blob = |seed: &str, size: u64| Descriptor { digest: id(seed), size };
    let image = |config: u64, layers: &[(&str, u64)]| manifest::Manifest {
        config: blob(&format!("config {config}"), config),
        layers: layers.iter().map(|(seed, size)| blob(seed, *size)).collect(),
    };
    let half = MAX_BYTES / 2;
    // What they share counts once.
    let two = [image(1, &[("base", half)]), image(2, &[("base", half), ("run", half - 3)])];
    let all = blobs(&two).expect("as much as there may be");
    assert_eq!((all.len(), all.iter().map(|it| it.size).sum::<u64>()), (4, MAX_BYTES));
    blobs(&[image(1, &[("base", half), ("run", half)])]).expect_err("one byte more");
    blobs(&[image(1, &[("a", u64::MAX), ("b", u64::MAX)])]).expect_err("more than there is");
    blobs(&[image(1, &[("a", 1)]), image(2, &[("a", 2)])]).expect_err("two sizes");
}
