#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "keys are made by ssh-keygen"
)]

use std::process::Command;

use super::*;

/// A private key as `ssh-keygen` writes it.
fn made(arguments: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("key");
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-C", "canary", "-f"]).arg(&path).args(arguments);
    if !arguments.contains(&"-N") {
        command.args(["-N", ""]);
    }
    let done = command.output().expect("ssh-keygen");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::read_to_string(&path).expect("the key")
}

fn problem(text: &str, passphrase: Option<&str>) -> String {
    let error = parse(text, passphrase).expect_err("no key");
    assert!(error.hint.is_some() && !format!("{error:?}").contains("canary"), "{error:?}");
    error.problem
}

#[test]
fn g2_keys_of_every_supported_kind_and_format_are_read() {
    for arguments in [
        &["-t", "ed25519"][..],
        &["-t", "ecdsa", "-b", "256"],
        &["-t", "ecdsa", "-b", "384"],
        &["-t", "ecdsa", "-b", "521"],
        &["-t", "rsa", "-b", "2048"],
        &["-t", "rsa", "-b", "2048", "-m", "PEM"],
        &["-t", "rsa", "-b", "2048", "-m", "PKCS8"],
        &["-t", "ecdsa", "-m", "PKCS8"],
    ] {
        let text = made(arguments);
        assert!(parse(&text, None).is_ok(), "{arguments:?}");
        // As it comes out of other tools.
        assert!(parse(text.trim_end(), None).is_ok(), "{arguments:?}: no last line break");
        assert!(parse(&text.replace('\n', "\r\n"), None).is_ok(), "{arguments:?}: Windows");
    }
}

#[test]
fn g2_a_passphrase_opens_its_key_only() {
    let text = made(&["-t", "ed25519", "-N", "canary"]);
    assert!(parse(&text, Some("canary")).is_ok());
    assert_eq!(problem(&text, Some("canary2")), "password is not the passphrase of identity");
    assert_eq!(problem(&text, None), "identity has a passphrase");
    let plain = made(&["-t", "ed25519"]);
    assert!(parse(&plain, Some("needless")).is_ok());
    let pem = made(&["-t", "rsa", "-b", "2048", "-m", "PEM", "-N", "canary"]);
    let other = "identity has a passphrase, and is not in OpenSSH's format";
    assert_eq!(problem(&pem, Some("canary")), other);
}

#[test]
fn g2_a_passphrase_that_takes_minutes_is_refused() {
    let text = made(&["-t", "ed25519", "-N", "canary", "-a", "16"]);
    let mut key =
        PrivateKey::from_openssh(&text).expect("a key").to_bytes().expect("bytes").to_vec();
    // The options of the key derivation: a salt of 16 bytes after its length, and then the rounds.
    let sixteen = 16_u32.to_be_bytes();
    let options = key.windows(24).position(|all| all[..4] == sixteen && all[20..] == sixteen);
    let place = options.expect("salt and rounds") + 20;
    key[place..place + 4].copy_from_slice(&1_000_000_u32.to_be_bytes());
    let slow = PrivateKey::from_bytes(&key).expect("a key");
    let text = slow.to_openssh(russh::keys::ssh_key::LineEnding::LF).expect("text").to_string();
    assert_eq!(problem(&text, Some("canary")), "the passphrase of identity takes 1000000 rounds");
}

#[test]
fn g2_what_is_no_private_key_is_told() {
    for (text, said) in [
        ("", "identity is no private key"),
        ("canary", "identity is no private key"),
        ("ssh-ed25519 AAAA canary", "identity is a public key"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\ncanary", "identity cannot be read as a private key"),
        (
            "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----",
            "identity cannot be read as a private key",
        ),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
            "identity cannot be read as a private key",
        ),
    ] {
        assert_eq!(problem(text, None), said, "{text}");
    }
}
