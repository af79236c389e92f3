#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the tests ask openssl")]

use std::io::Write;
use std::process::{Command, Stdio};

use super::*;

fn openssl(args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("openssl")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl");
    child.stdin.take().expect("stdin").write_all(input).expect("written");
    let done = child.wait_with_output().expect("openssl");
    assert!(done.status.success(), "openssl {args:?}");
    done.stdout
}

#[test]
fn b12_a_key_that_is_made_signs_and_openssl_says_the_same_of_it() {
    let made = SigningKey::generate().expect("a key");
    let key = SigningKey::from_pem(made.get().as_bytes()).expect("it is read");
    let theirs = openssl(&["pkey", "-pubout"], made.get().as_bytes());
    assert_eq!(String::from_utf8(theirs).expect("text"), key.public_pem());
    let public = PublicKey::from_pem(key.public_pem().as_bytes()).expect("a public key");
    let signature = key.sign(b"message").expect("a signature");
    assert!(public.verifies(b"message", &signature));
    assert!(!public.verifies(b"messagf", &signature));
    assert!(!public.verifies(b"message", &signature[1..]));
    assert!(!public.verifies(b"message", b""));
    let other =
        SigningKey::generate().and_then(|pem| SigningKey::from_pem(pem.get().as_bytes()).ok());
    let other = other.expect("another key").public_pem();
    assert!(
        !PublicKey::from_pem(other.as_bytes()).expect("a key").verifies(b"message", &signature)
    );

    // As `openssl dgst -verify` says it.
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("pub"), key.public_pem()).expect("the key");
    std::fs::write(at("sig"), &signature).expect("the signature");
    let said =
        openssl(&["dgst", "-sha256", "-verify", &at("pub"), "-signature", &at("sig")], b"message");
    assert_eq!(said, b"Verified OK\n");
}

#[test]
fn b12_a_key_that_somebody_brings_is_read() {
    let args = ["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
    let pem = openssl(&args, b"");
    let key = SigningKey::from_pem(&pem).expect("a key");
    assert_eq!(openssl(&["pkey", "-pubout"], &pem), key.public_pem().into_bytes());
    assert_eq!(format!("{key:?}"), "SigningKey(…)");
    for (what, args) in [
        (
            "another curve",
            &["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-384"][..],
        ),
        ("RSA", &["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]),
        ("Ed25519", &["genpkey", "-algorithm", "ED25519"]),
    ] {
        let pem = openssl(args, b"");
        assert_eq!(SigningKey::from_pem(&pem).expect_err(what), NoKey::Private, "{what}");
        let public = openssl(&["pkey", "-pubout"], &pem);
        assert_eq!(PublicKey::from_pem(&public), Err(NoKey::Public), "{what}");
    }
    let canary = b"-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----\n";
    for bad in [&b""[..], b"canary", canary, key.public_pem().as_bytes()] {
        let error = SigningKey::from_pem(bad).expect_err("no key");
        assert!(!error.to_string().contains("canary"));
    }
    assert_eq!(PublicKey::from_pem(&pem), Err(NoKey::Public));
}
