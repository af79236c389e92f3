#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests run git and gpg")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::pedantic)]

#[path = "../../../../tests/support/signing.rs"]
mod signing;

mod keys;

use std::path::PathBuf;
use std::process::Command;

use self::signing::{Signer, Signing, signed};
use super::*;

/// A repository without files, and keys.
struct World {
    signing: Signing,
    repo: PathBuf,
}

const DAY: u64 = 24 * 60 * 60;

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.unwrap().as_secs()
}

impl World {
    fn new() -> Self {
        Self::with_hash("sha1")
    }

    fn with_hash(hash: &str) -> Self {
        let signing = Signing::new();
        let repo = signing.dir().join("r.git");
        let world = Self { signing, repo };
        world.git(&["init", "-q", "--bare", &format!("--object-format={hash}")]);
        let tree = world.git(&["hash-object", "-t", "tree", "-w", "/dev/null"]);
        let first = world.git(&["commit-tree", "-m", "first", &String::from_utf8(tree).unwrap()]);
        world.git(&["update-ref", "refs/heads/main", &String::from_utf8(first).unwrap()]);
        world
    }

    fn git(&self, arguments: &[&str]) -> Vec<u8> {
        let done = Command::new("git")
            .arg("--git-dir")
            .arg(&self.repo)
            .args(arguments)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_AUTHOR_NAME", "Ada")
            .env("GIT_AUTHOR_EMAIL", "ada@example.com")
            .env("GIT_COMMITTER_NAME", "Ada")
            .env("GIT_COMMITTER_EMAIL", "ada@example.com")
            .output()
            .unwrap();
        assert!(done.status.success(), "{arguments:?} {}", String::from_utf8_lossy(&done.stderr));
        let mut out = done.stdout;
        if !arguments.contains(&"cat-file") {
            out.truncate(out.trim_ascii_end().len());
        }
        out
    }

    fn id(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.git(arguments)).unwrap()
    }

    /// The bytes of a commit that git signed.
    fn commit(&self, signer: &Signer, message: &str) -> Vec<u8> {
        let arguments = ["commit-tree", "-S", "-p", "main", "-m", message, "main^{tree}"];
        let id = self.id(&signed(signer, &arguments));
        self.git(&["cat-file", "commit", &id])
    }

    /// The bytes of a tag that git signed.
    fn tag(&self, signer: &Signer, name: &str, of: &str) -> Vec<u8> {
        self.git(&signed(signer, &["tag", "-f", "-s", "-m", "a release", name, of]));
        self.git(&["cat-file", "tag", name])
    }
}

fn keys(values: &[(&str, &str)]) -> Keys {
    let data = values.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
    Keys::of(&data.collect()).unwrap_or_else(|why| panic!("{why}"))
}

fn rules(keys: &Keys) -> Rules<'_> {
    Rules { keys, now: now(), hash: Kind::Sha1 }
}

fn replaced(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    assert!(text.contains(from), "{text}");
    text.replacen(from, to, 1).into_bytes()
}

fn is_malformed<T>(result: Result<T, Unverified>) -> bool {
    matches!(result, Err(Unverified::Malformed(_)))
}

#[test]
fn g4_commits_and_tags_that_gpg_signed_are_verified() {
    let world = World::new();
    for algorithm in ["ed25519", "rsa2048", "nistp256", "nistp384", "nistp521", "brainpoolP256r1"] {
        let key = world.signing.key(algorithm, algorithm, "sign", "never");
        let signer = world.signing.openpgp(&key);
        let ours = keys(&[("a.asc", &world.signing.export(&key))]);
        let (bytes, tag_bytes) = (world.commit(&signer, "hello"), world.tag(&signer, "v1", "main"));
        let (main, shown) = (world.id(&["rev-parse", "main"]), format!("OpenPGP key {key}"));
        if algorithm.starts_with("brainpool") {
            // Nobody is let in that cannot be verified.
            assert!(commit(&bytes, rules(&ours)).is_err());
            continue;
        }
        assert_eq!(commit(&bytes, rules(&ours)), Ok(shown.clone()), "{algorithm}");
        assert_eq!(tag(&tag_bytes, ("v1", &main), rules(&ours)), Ok(shown.clone()));
        let changed = replaced(&bytes, "hello", "hullo");
        let wrong = Err(Unverified::Wrong { key: shown.clone() });
        assert_eq!(commit(&changed, rules(&ours)), wrong, "{algorithm}");
        let changed = replaced(&tag_bytes, "a release", "a relapse");
        assert_eq!(tag(&changed, ("v1", &main), rules(&ours)), wrong, "{algorithm}");
    }
}

#[test]
fn g4_commits_and_tags_that_an_ssh_key_signed_are_verified() {
    let world = World::new();
    for (name, arguments) in [
        ("ed25519", &["-t", "ed25519"][..]),
        ("ecdsa256", &["-t", "ecdsa", "-b", "256"]),
        ("ecdsa384", &["-t", "ecdsa", "-b", "384"]),
        ("ecdsa521", &["-t", "ecdsa", "-b", "521"]),
        ("rsa", &["-t", "rsa", "-b", "2048"]),
    ] {
        let (public, signer) = world.signing.ssh(name, arguments);
        let ours = keys(&[("a.sshpub", &format!("# ours\n\n{public}"))]);
        let bytes = world.commit(&signer, "hello");
        let signed_by = commit(&bytes, rules(&ours)).unwrap();
        assert!(signed_by.starts_with("ssh key SHA256:"), "{signed_by}");
        let (tag_bytes, main) =
            (world.tag(&signer, "v1", "main"), world.id(&["rev-parse", "main"]));
        assert_eq!(tag(&tag_bytes, ("v1", &main), rules(&ours)).as_deref(), Ok(&*signed_by));
        let changed = commit(&replaced(&bytes, "hello", "hullo"), rules(&ours));
        assert_eq!(changed, Err(Unverified::Wrong { key: signed_by.clone() }));
        let (other, _) = world.signing.ssh(&format!("other-{name}"), arguments);
        let others = keys(&[("a.sshpub", &other)]);
        let unknown = Err(Unverified::UnknownKey { needed: signed_by });
        assert_eq!(commit(&bytes, rules(&others)), unknown);
    }
    // Made with the right key, for something else: a file that somebody got signed is no commit.
    let (public, _) = world.signing.ssh("k", &["-t", "ed25519"]);
    let bytes = world.commit(&world.signing.ssh_for("k", "file"), "hello");
    let refused = commit(&bytes, rules(&keys(&[("a.sshpub", &public)]))).unwrap_err();
    assert!(refused.to_string().contains("made for \"file\""), "{refused}");
}

#[test]
fn g4_in_a_repository_of_sha256_the_header_of_that_hash_counts() {
    let world = World::with_hash("sha256");
    let key = world.signing.key("a", "ed25519", "sign", "never");
    let ours = keys(&[("a.asc", &world.signing.export(&key))]);
    let bytes = world.commit(&world.signing.openpgp(&key), "hello");
    let sha256 = Rules { hash: Kind::Sha256, ..rules(&ours) };
    assert!(String::from_utf8_lossy(&bytes).contains("\ngpgsig-sha256 "));
    assert_eq!(commit(&bytes, sha256), Ok(format!("OpenPGP key {key}")));
    assert_eq!(commit(&bytes, rules(&ours)), Err(Unverified::Unsigned), "of the other hash");
    let main = world.id(&["rev-parse", "main"]);
    let bytes = world.tag(&world.signing.openpgp(&key), "v1", "main");
    assert!(tag(&bytes, ("v1", &main), sha256).is_ok());
}

#[test]
fn v23_a_signature_counts_for_exactly_what_was_signed() {
    let world = World::new();
    let key = world.signing.key("a", "ed25519", "sign", "never");
    let signer = world.signing.openpgp(&key);
    let ours = keys(&[("a.asc", &world.signing.export(&key))]);
    let check = |bytes: &[u8]| commit(bytes, rules(&ours));
    let (one, two) = (world.commit(&signer, "one"), world.commit(&signer, "two"));
    assert!(check(&one).is_ok() && check(&two).is_ok());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let header = |bytes: &[u8]| {
        let text = text(bytes);
        let (from, to) = (text.find("gpgsig ").unwrap(), text.find("\n\n").unwrap() + 1);
        text[from..to].to_owned()
    };
    // The signature of another commit.
    let pasted = replaced(&one, &header(&one), &header(&two));
    assert!(matches!(check(&pasted), Err(Unverified::Wrong { .. })));
    // Two of them, whichever comes first, and one with another name that Git leaves out, too.
    let twice = replaced(&one, "gpgsig ", &format!("{}gpgsig ", header(&two)));
    assert!(is_malformed(check(&twice)));
    let hidden = replaced(&one, "gpgsig ", "gpgsig-sha512 x\ngpgsig ");
    assert!(is_malformed(check(&hidden)));
    // A header that is signed may not be added, nor a line that continues it.
    for added in ["encoding x\ngpgsig ", "parent x\n y\ngpgsig "] {
        assert!(check(&replaced(&one, "gpgsig ", added)).is_err(), "{added}");
    }
    // Anything around or in the block.
    let end = " -----END PGP SIGNATURE-----\n";
    for (from, to) in [
        (end, " -----END PGP SIGNATURE-----\n x\n"),
        (end, ""),
        (" -----END PGP", " -----END SSH"),
        ("gpgsig -----BEGIN PGP SIGNATURE", "gpgsig -----BEGIN PGP MESSAGE"),
        ("gpgsig -----BEGIN", "gpgsig x\n -----BEGIN"),
        ("SIGNATURE-----\n \n", "SIGNATURE-----\n"),
        ("SIGNATURE-----\n \n", "SIGNATURE-----\n \n ====\n"),
    ] {
        assert!(is_malformed(check(&replaced(&one, from, to))), "{from:?} {to:?}");
    }
    let block = header(&one).replace("gpgsig ", " ");
    assert!(is_malformed(check(&replaced(&one, end, &format!("{end}{block}")))), "a second block");
    // A second packet in the block: gpg writes it with two keys.
    let other = world.signing.key("b", "ed25519", "sign", "never");
    let both = world.signing.openpgp_with(&key, &format!("-u {other}"));
    assert!(is_malformed(check(&world.commit(&both, "one"))));
    // Budgets.
    let long = format!("gpgsig {}", "x".repeat(70_000));
    assert!(is_malformed(check(&replaced(&one, "gpgsig ", &format!("{long}\n ")))));
    // The wrong kind of signature: of a tag for a commit, and the other way round.
    let tagged = world.tag(&signer, "v1", "main");
    assert_eq!(check(&tagged), Err(Unverified::Unsigned));
    assert!(tag(&one, ("v1", "x"), rules(&ours)).is_err());
    // Any change of a byte.
    for at in 0..one.len() {
        let mut damaged = one.clone();
        damaged[at] ^= 0x04;
        // Armor may be written in several ways; what is signed may not.
        let is_armor = text(&one)[..at].contains("gpgsig") && !text(&one)[..at].contains(end);
        assert!(is_armor || check(&damaged).is_err(), "byte {at}");
    }
}

#[test]
fn v23_a_signed_tag_counts_under_its_name_and_for_its_commit_only() {
    let world = World::new();
    let key = world.signing.key("a", "ed25519", "sign", "never");
    let signer = world.signing.openpgp(&key);
    let ours = keys(&[("a.asc", &world.signing.export(&key))]);
    let main = world.id(&["rev-parse", "main"]);
    let bytes = world.tag(&signer, "v1", "main");
    assert!(tag(&bytes, ("v1", &main), rules(&ours)).is_ok());
    let mismatch = |bytes: &[u8], name: &str, commit: &str| {
        let refused = tag(bytes, (name, commit), rules(&ours)).unwrap_err();
        assert!(matches!(refused, Unverified::OtherTag(_)), "{refused}");
        refused.to_string()
    };
    assert_eq!(mismatch(&bytes, "v2", &main), "the signed tag is named \"v1\"");
    assert!(mismatch(&bytes, "v1", &"0".repeat(40)).contains(&main));
    let nested = world.tag(&signer, "v3", "v1");
    assert!(mismatch(&nested, "v3", &main).contains("of a tag, not of a commit"));
    let tree = world.tag(&signer, "v4", "main^{tree}");
    assert!(mismatch(&tree, "v4", &main).contains("of a tree"));
    world.git(&["tag", "-a", "-m", "unsigned", "v5", "main"]);
    let unsigned = world.git(&["cat-file", "tag", "v5"]);
    assert_eq!(tag(&unsigned, ("v5", &main), rules(&ours)), Err(Unverified::Unsigned));
    // A second signature at the end, and text after the only one.
    let at = bytes.windows(10).position(|part| part == b"-----BEGIN").unwrap();
    let twice = [&bytes[..], &bytes[at..]].concat();
    assert!(is_malformed(tag(&twice, ("v1", &main), rules(&ours))));
    let more = [&bytes[..], b"more\n"].concat();
    assert!(is_malformed(tag(&more, ("v1", &main), rules(&ours))));
    let long = [&bytes[..], &b"\n".repeat(70_000)].concat();
    assert!(is_malformed(tag(&long, ("v1", &main), rules(&ours))));
}

#[test]
fn g4_what_is_not_understood_is_refused_with_its_reason() {
    let world = World::new();
    let key = world.signing.key("a", "ed25519", "sign", "never");
    let ours = keys(&[("a.asc", &world.signing.export(&key))]);
    let unsigned = world.git(&["cat-file", "commit", "main"]);
    assert_eq!(commit(&unsigned, rules(&ours)), Err(Unverified::Unsigned));
    let unsupported = |bytes: &[u8], said: &str| {
        let refused = commit(bytes, rules(&ours)).unwrap_err();
        assert!(matches!(refused, Unverified::Unsupported(_)), "{refused:?}");
        assert!(refused.to_string().contains(said), "{refused}");
    };
    let weak = world
        .signing
        .openpgp_with(&key, "--digest-algo SHA1 --allow-weak-digest-algos --disable-dirmngr");
    unsupported(&world.commit(&weak, "x"), "SHA1");
    let critical = world.signing.openpgp_with(&key, "--sig-notation !a@example.com=1");
    unsupported(&world.commit(&critical, "x"), "critical");
    let x509 = replaced(
        &unsigned,
        "\n\n",
        "\ngpgsig -----BEGIN SIGNED MESSAGE-----\n MIAG\n -----END SIGNED MESSAGE-----\n\n",
    );
    unsupported(&x509, "X.509");
    let odd = replaced(&unsigned, "\n\n", "\ngpgsig x\n\n");
    assert!(is_malformed(commit(&odd, rules(&ours))));
    let empty = replaced(&unsigned, "\n\n", "\ngpgsig \n\n");
    assert!(is_malformed(commit(&empty, rules(&ours))));
}
