//! Keys that sign commits and tags: gpg with a home of its own, and ssh keys.
#![allow(dead_code, reason = "every test crate uses its own part")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests touch the disk")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::pedantic)]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A home of gpg, and a folder for ssh keys. Its agent ends when this is dropped.
pub struct Signing {
    dir: tempfile::TempDir,
}

/// What `git` gets before its subcommand to sign with a key.
pub type Signer = Vec<String>;

impl Signing {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let signing = Self { dir };
        std::fs::create_dir(signing.home()).unwrap();
        std::fs::set_permissions(signing.home(), PermissionsExt::from_mode(0o700)).unwrap();
        signing
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("g")
    }

    /// Runs gpg.
    pub fn gpg(&self, arguments: &[&str]) -> String {
        self.gpg_with(arguments, b"")
    }

    /// The same with something on standard input.
    pub fn gpg_with(&self, arguments: &[&str], input: &[u8]) -> String {
        let mut child = Command::new("gpg")
            .arg("--homedir")
            .arg(self.home())
            .args([
                "--quiet",
                "--no-tty",
                "--yes",
                "--pinentry-mode",
                "loopback",
                "--passphrase",
                "",
            ])
            .args(arguments)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("gpg (Debian package gnupg)");
        child.stdin.take().unwrap().write_all(input).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    }

    /// Makes an OpenPGP key: an algorithm like `ed25519`, what it is for (`sign`, `cert`), and its time (`never`, `1d`). Returns its
    /// fingerprint.
    pub fn key(&self, name: &str, algorithm: &str, usage: &str, expires: &str) -> String {
        self.key_at(&[], name, [algorithm, usage, expires])
    }

    /// The same with more options of gpg.
    pub fn key_at(
        &self,
        options: &[&str],
        name: &str,
        [algorithm, usage, expires]: [&str; 3],
    ) -> String {
        let user = format!("{name} <{name}@example.com>");
        let make = ["--batch", "--quick-gen-key", &user, algorithm, usage, expires];
        self.gpg(&[options, &make].concat());
        self.fingerprints(name)[0].clone()
    }

    /// The fingerprints of a key and of its subkeys.
    pub fn fingerprints(&self, name: &str) -> Vec<String> {
        let address = format!("<{name}@example.com>");
        let listed = self.gpg(&["--with-colons", "--list-keys", &address]);
        let lines = listed.lines().filter_map(|line| line.strip_prefix("fpr:::::::::"));
        lines.map(|rest| rest.trim_end_matches(':').to_owned()).collect()
    }

    /// The armored certificate.
    pub fn export(&self, key: &str) -> String {
        self.gpg(&["--armor", "--export", key])
    }

    /// The revocation that gpg made together with a key: a block without the key.
    pub fn revocation(&self, fingerprint: &str) -> String {
        let path = self.home().join(format!("openpgp-revocs.d/{fingerprint}.rev"));
        let text = std::fs::read_to_string(path).unwrap().replace("\n:-----", "\n-----");
        text[text.find("-----BEGIN").unwrap()..].to_owned()
    }

    /// Revokes a key.
    pub fn revoke(&self, fingerprint: &str) {
        let text = self.revocation(fingerprint);
        self.gpg_with(&["--batch", "--import"], text.as_bytes());
    }

    /// Answers the questions of `gpg --edit-key`, one a line.
    pub fn edit(&self, key: &str, answers: &str) {
        self.gpg_with(&["--command-fd", "0", "--edit-key", key], answers.as_bytes());
    }

    /// Git signs with this OpenPGP key.
    pub fn openpgp(&self, key: &str) -> Signer {
        self.openpgp_with(key, "")
    }

    /// The same with more options of gpg.
    pub fn openpgp_with(&self, key: &str, options: &str) -> Signer {
        let program = self.dir.path().join(format!("gpg{}", options.replace([' ', '/'], "_")));
        let text = format!(
            "#!/bin/sh\nexec gpg --homedir {} --batch --no-tty --pinentry-mode loopback --passphrase '' {options} \"$@\"\n",
            self.home().display()
        );
        script(&program, &text);
        config(&[&format!("gpg.program={}", program.display()), &format!("user.signingkey={key}!")])
    }

    /// Makes an ssh key. Returns its public part, and how git signs with it.
    pub fn ssh(&self, name: &str, arguments: &[&str]) -> (String, Signer) {
        let path = self.dir.path().join(name);
        let done = Command::new("ssh-keygen")
            .args(["-q", "-N", "", "-C", name, "-f"])
            .arg(&path)
            .args(arguments)
            .output()
            .expect("ssh-keygen");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let public = std::fs::read_to_string(path.with_extension("pub")).unwrap();
        (public, config(&["gpg.format=ssh", &format!("user.signingkey={}", path.display())]))
    }

    /// Git signs with this ssh key, for another namespace.
    pub fn ssh_for(&self, name: &str, namespace: &str) -> Signer {
        let (key, program) = (self.dir.path().join(name), self.dir.path().join("other-namespace"));
        script(
            &program,
            &format!(
                "#!/bin/sh\nfor last; do :; done\nexec ssh-keygen -Y sign -n {namespace} -f {} \"$last\"\n",
                key.display()
            ),
        );
        config(&[
            "gpg.format=ssh",
            &format!("gpg.ssh.program={}", program.display()),
            &format!("user.signingkey={}", key.display()),
        ])
    }
}

impl Drop for Signing {
    fn drop(&mut self) {
        let mut end = Command::new("gpgconf");
        end.arg("--homedir").arg(self.home()).args(["--kill", "all"]);
        let _ = end.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

fn config(values: &[&str]) -> Signer {
    values.iter().flat_map(|value| ["-c".to_owned(), (*value).to_owned()]).collect()
}

fn script(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// The arguments of git with those of a signer before them.
pub fn signed<'a>(signer: &'a Signer, arguments: &[&'a str]) -> Vec<&'a str> {
    signer.iter().map(String::as_str).chain(arguments.iter().copied()).collect()
}
