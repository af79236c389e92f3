//! Which keys may sign, and when.

use super::*;

/// Whether a commit that a key signed is verified with this certificate at a time.
fn at(bytes: &[u8], certificate: &str, now: u64) -> Result<String, Unverified> {
    let ours = keys(&[("a.asc", certificate)]);
    commit(bytes, Rules { now, ..rules(&ours) })
}

/// The packets of an armored block.
fn binary(text: &str) -> Vec<u8> {
    armor::decode(text.trim(), "PGP PUBLIC KEY BLOCK", armor::Style::OpenPgp).unwrap()
}

/// An armored block of these packets.
fn armored(packets: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(packets);
    format!("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{text}\n-----END PGP PUBLIC KEY BLOCK-----\n")
}

#[test]
fn g4_an_expired_or_revoked_key_does_not_count_even_for_what_it_signed_before() {
    let world = World::new();
    let key = world.signing.key("a", "ed25519", "sign", "10d");
    let bytes = world.commit(&world.signing.openpgp(&key), "hello");
    let before = world.signing.export(&key);
    let shown = format!("OpenPGP key {key}");
    assert_eq!(at(&bytes, &before, now() + 9 * DAY), Ok(shown.clone()));
    let expired = Err(Unverified::Expired { what: shown.clone() });
    assert_eq!(at(&bytes, &before, now() + 11 * DAY), expired);
    // A new export with more time; of both, the newer one counts.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    world.signing.gpg(&["--batch", "--quick-set-expire", &key, "20d"]);
    let after = world.signing.export(&key);
    for certificates in [after.clone(), format!("{after}{before}"), format!("{before}{after}")] {
        assert!(at(&bytes, &certificates, now() + 11 * DAY).is_ok());
    }
    // Nothing that is said later counts before.
    assert!(matches!(at(&bytes, &after, now() - DAY), Err(Unverified::Unsupported(_))));
    world.signing.revoke(&key);
    let revoked = world.signing.export(&key);
    for certificates in
        [revoked.clone(), format!("{revoked}{before}"), format!("{before}{revoked}")]
    {
        let refused = Err(Unverified::Revoked { key: shown.clone() });
        assert_eq!(at(&bytes, &certificates, now()), refused);
    }
}

#[test]
fn g4_a_signing_subkey_counts_while_it_is_bound_and_valid() {
    let world = World::new();
    let primary = world.signing.key("a", "ed25519", "cert", "never");
    world.signing.gpg(&["--batch", "--quick-add-key", &primary, "ed25519", "sign", "10d"]);
    let subkey = world.signing.fingerprints("a")[1].clone();
    let bytes = world.commit(&world.signing.openpgp(&subkey), "hello");
    let certificate = world.signing.export(&primary);
    assert_eq!(at(&bytes, &certificate, now()), Ok(format!("OpenPGP key {primary}")));
    let what = format!("OpenPGP key {subkey}");
    let expired = at(&bytes, &certificate, now() + 11 * DAY);
    assert_eq!(expired, Err(Unverified::Expired { what: what.clone() }));
    world.signing.edit(&primary, "key 1\nrevkey\ny\n0\n\ny\nsave\n");
    let revoked = world.signing.export(&primary);
    assert_eq!(at(&bytes, &revoked, now()), Err(Unverified::Revoked { key: what }));
}

#[test]
fn v23_a_certificate_cannot_adopt_the_subkey_of_another() {
    let world = World::new();
    let victim = world.signing.key("a", "ed25519", "cert", "never");
    world.signing.gpg(&["--batch", "--quick-add-key", &victim, "ed25519", "sign", "never"]);
    let subkey = world.signing.fingerprints("a")[1].clone();
    let bytes = world.commit(&world.signing.openpgp(&subkey), "hello");
    let other = world.signing.key("b", "ed25519", "sign", "never");
    let binary = |key: &str| binary(&world.signing.export(key));
    // The subkey with its binding, behind another primary key: the end of the packets of the victim.
    let (of_victim, of_other) = (binary(&victim), binary(&other));
    let start = of_victim.windows(2).rposition(|two| two[0] == 0xb8 && two[1] == 0x33).unwrap();
    let grafted = [&of_other[..], &of_victim[start..]].concat();
    let armored = armored(&grafted);
    let refused = at(&bytes, &armored, now()).unwrap_err();
    assert!(
        matches!(&refused, Unverified::Unsupported(why) if why.contains("is not bound")),
        "{refused}"
    );
    assert!(at(&bytes, &world.signing.export(&victim), now()).is_ok());
}

#[test]
fn v23_a_revocation_beside_its_key_is_not_overlooked() {
    let world = World::new();
    let key = world.signing.key("a", "ed25519", "cert", "never");
    world.signing.gpg(&["--batch", "--quick-add-key", &key, "ed25519", "sign", "never"]);
    let bytes = world.commit(&world.signing.openpgp(&world.signing.fingerprints("a")[1]), "hello");
    let (certificate, revocation) = (world.signing.export(&key), world.signing.revocation(&key));
    let verify = |values: &[(&str, &str)]| commit(&bytes, rules(&keys(values)));
    let shown = format!("OpenPGP key {key}");
    assert_eq!(verify(&[("a.asc", &certificate)]), Ok(shown.clone()));
    // As gpg writes it, in a block of its own or in a value of its own; and behind everything else of the certificate.
    let (before, after) =
        (format!("{revocation}{certificate}"), format!("{certificate}\n{revocation}"));
    let packets = [binary(&certificate), binary(&revocation)];
    let within = armored(&packets.concat());
    // Before everything else, with a packet in between that belongs to nothing.
    let ahead = armored(&[&packets[1][..], &[0xb4, 1, b'x'], &packets[0]].concat());
    for values in [
        vec![("a.asc", before.as_str())],
        vec![("a.asc", &after)],
        vec![("a.asc", &within)],
        vec![("a.asc", &ahead)],
        vec![("a.asc", &certificate), ("b.asc", &revocation)],
        vec![("a.asc", &revocation), ("b.asc", &certificate)],
    ] {
        assert_eq!(verify(&values), Err(Unverified::Revoked { key: shown.clone() }));
    }
    // That of another key takes nothing away.
    let other = world.signing.key("b", "ed25519", "sign", "never");
    let of_other = world.signing.revocation(&other);
    assert_eq!(verify(&[("a.asc", &certificate), ("b.asc", &of_other)]), Ok(shown));
    let data = [("a.asc".to_owned(), revocation.into_bytes())];
    let why = Keys::of(&data.into()).unwrap_err();
    assert_eq!(why.to_string(), "it has revocations, and no key");
}

#[test]
fn v23_the_revocation_of_a_subkey_counts_wherever_it_is() {
    let world = World::new();
    let key = world.signing.key("a", "ed25519", "cert", "never");
    for usage in ["sign", "auth"] {
        world.signing.gpg(&["--batch", "--quick-add-key", &key, "ed25519", usage, "never"]);
    }
    let subkey = world.signing.fingerprints("a")[1].clone();
    let bytes = world.commit(&world.signing.openpgp(&subkey), "hello");
    let before = binary(&world.signing.export(&key));
    world.signing.edit(&key, "key 1\nrevkey\ny\n0\n\ny\nsave\n");
    let after = binary(&world.signing.export(&key));
    // The packets: each with a header of the old format, as gpg writes it.
    let split = |bytes: &[u8]| {
        let (mut at, mut all) = (0, Vec::new());
        while at < bytes.len() {
            let length = usize::from(bytes[at + 1]);
            let (header, length) = match bytes[at] & 3 {
                0 => (2, length),
                _ => (3, length << 8 | usize::from(bytes[at + 2])),
            };
            all.push(bytes[at..at + header + length].to_vec());
            at += header + length;
        }
        all
    };
    let known = split(&before);
    let revocation = split(&after).into_iter().find(|packet| !known.contains(packet)).unwrap();
    let verify = |text: &str| commit(&bytes, rules(&keys(&[("a.asc", text)])));
    assert!(verify(&armored(&before)).is_ok());
    let revoked = Err(Unverified::Revoked { key: format!("OpenPGP key {subkey}") });
    assert_eq!(verify(&armored(&after)), revoked);
    // Behind the other subkey; and in a copy whose packets have headers of the new format.
    assert_eq!(verify(&armored(&[&before[..], &revocation].concat())), revoked);
    let new_format: Vec<u8> = split(&after)
        .iter()
        .flat_map(|packet| {
            let header = 2 + usize::from(packet[0] & 3);
            let body = &packet[header..];
            let mut header = vec![0xc0 | (packet[0] >> 2 & 0xf), 255];
            header.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
            [&header, body].concat()
        })
        .collect();
    let two = format!("{}{}", armored(&before), armored(&new_format));
    assert_eq!(verify(&two), revoked);
}

#[test]
fn v23_copies_of_a_subkey_are_one_key() {
    let world = World::new();
    let key = world.signing.key("a", "ed25519", "cert", "never");
    world.signing.gpg(&["--batch", "--quick-add-key", &key, "ed25519", "sign", "never"]);
    let certificate = world.signing.export(&key);
    let packets = binary(&certificate);
    let start = packets.windows(2).rposition(|two| two[0] == 0xb8 && two[1] == 0x33).unwrap();
    let many = [&packets[..], &packets[start..].repeat(600)].concat();
    let found = keys(&[("a.asc", &armored(&many)), ("b.asc", &certificate)]);
    assert_eq!(found.len(), 2);
    let bytes = world.commit(&world.signing.openpgp(&world.signing.fingerprints("a")[1]), "hello");
    assert_eq!(commit(&bytes, rules(&found)), Ok(format!("OpenPGP key {key}")));
}

#[test]
fn g4_keys_that_are_weak_or_not_for_signing_do_not_count() {
    let world = World::new();
    let weak = world.signing.key("weak", "rsa1024", "sign", "never");
    let bytes = world.commit(&world.signing.openpgp(&weak), "x");
    let refused = at(&bytes, &world.signing.export(&weak), now()).unwrap_err();
    assert!(refused.to_string().contains("less than 2048 bits"), "{refused}");
    // gpg signs with a key only for what it is for, so the certificate says later that it only certifies.
    let key = world.signing.key("a", "ed25519", "sign", "never");
    let bytes = world.commit(&world.signing.openpgp(&key), "x");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    world.signing.edit(&key, "change-usage\nS\nQ\nsave\n");
    let refused = at(&bytes, &world.signing.export(&key), now()).unwrap_err();
    assert!(refused.to_string().contains("is not for signing"), "{refused}");
}

#[test]
fn g4_the_values_of_a_secret_are_keys_or_an_error_that_names_the_value() {
    let world = World::new();
    let (one, two) = (
        world.signing.key("a", "ed25519", "sign", "never"),
        world.signing.key("b", "ed25519", "sign", "never"),
    );
    let (ssh, _) = world.signing.ssh("k", &["-t", "ed25519"]);
    let (a, b) = (world.signing.export(&one), world.signing.export(&two));
    let of = |values: &[(&str, &[u8])]| {
        let data = values.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec()));
        Keys::of(&data.collect())
    };
    let many = world.signing.gpg(&["--armor", "--export"]);
    let all = [
        ("a.asc", many.as_bytes()),
        ("b.asc", b.as_bytes()),
        ("k.sshpub", ssh.as_bytes()),
        ("note", &b"\xff"[..]),
    ];
    let found = of(&all).unwrap();
    assert_eq!((found.certificates.len(), found.ssh.len()), (2, 1), "no certificate twice");
    assert_eq!(found, of(&all[..3]).unwrap(), "other values do not count");
    assert_ne!(found, of(&all[1..]).unwrap());
    let bytes = world.commit(&world.signing.openpgp(&two), "x");
    assert_eq!(commit(&bytes, rules(&found)), Ok(format!("OpenPGP key {two}")));
    let alone = of(&[("a.asc", a.as_bytes())]).unwrap();
    let needed = format!("OpenPGP key {two}");
    assert_eq!(commit(&bytes, rules(&alone)), Err(Unverified::UnknownKey { needed }));

    let private = world.signing.gpg(&["--armor", "--export-secret-keys", &one]);
    let (ssh_private, cut) =
        (std::fs::read(world.signing.dir().join("k")).unwrap(), &a[..a.len() / 2]);
    let many = ssh.repeat(501);
    let large = format!("{}\n", "# x".repeat(100_000));
    for (name, value, said) in [
        ("a.asc", &b""[..], "a.asc: it has no OpenPGP key"),
        ("a.asc", b"\xff", "a.asc: it is no text"),
        ("a.asc", b"canary", "a.asc: it does not begin with"),
        ("a.asc", cut.as_bytes(), "a.asc: it has no line END"),
        ("a.asc", private.as_bytes(), "a.asc: it has a private key"),
        ("k.sshpub", b"", "k.sshpub: it has no key"),
        ("k.sshpub", b"ssh-ed25519 canary", "k.sshpub: line 1 is no public ssh key"),
        ("k.sshpub", &ssh_private, "k.sshpub: it is a private key"),
        ("k.sshpub", many.as_bytes(), "more than 500 keys"),
        ("k.sshpub", large.as_bytes(), "more than 262144 bytes"),
        ("note", b"x", "no value whose name ends with .asc or .sshpub"),
    ] {
        let why = of(&[(name, value)]).expect_err(said);
        assert!(why.to_string().contains(said), "{why}");
        assert!(!format!("{why:?}").contains("canary"), "{why:?}");
    }
    assert!(of(&[]).is_err());
    assert_eq!(format!("{found:?}"), "Keys(3)");
}
