//! (pure) The private key of a Secret.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use russh::keys::ssh_key::Kdf;
use russh::keys::{Algorithm, PrivateKey, decode_secret_key};

use crate::git::NoCredentials;

/// Rounds of the function that makes a key from a passphrase. `ssh-keygen` takes 16 by itself, and people 100. Each needs some milliseconds,
/// each time that the Secret is read.
const MAX_ROUNDS: u32 = 128;

/// Reads a private key: OpenSSH's format, also with a passphrase, or PEM without one.
///
/// # Errors
/// When it cannot be read, its passphrase is missing or wrong, or its kind is not supported. No text quotes anything of it.
pub(in crate::git) fn parse(
    text: &str,
    passphrase: Option<&str>,
) -> Result<PrivateKey, NoCredentials> {
    let text = text.trim();
    let key = if text.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----") {
        let key = PrivateKey::from_openssh(text).map_err(|_| damaged())?;
        match (key.is_encrypted(), passphrase) {
            (false, _) => key,
            (true, None) => {
                let hint = "give its passphrase as password, or take it off: ssh-keygen -p -f KEY";
                return Err(NoCredentials::new("identity has a passphrase", hint));
            }
            (true, Some(passphrase)) => decrypted(&key, passphrase)?,
        }
    } else if !text.starts_with("-----BEGIN ") {
        let public = text.starts_with("ssh-") || text.starts_with("ecdsa-");
        let problem =
            if public { "identity is a public key" } else { "identity is no private key" };
        return Err(NoCredentials::new(
            problem,
            "it is the file that ssh-keygen makes, the one without .pub",
        ));
    } else if text.contains("ENCRYPTED") {
        let problem = "identity has a passphrase, and is not in OpenSSH's format";
        return Err(NoCredentials::new(problem, "write it in that format: ssh-keygen -p -f KEY"));
    } else {
        decode_secret_key(text, None).map_err(|_| damaged())?
    };
    match key.algorithm() {
        Algorithm::Ed25519 | Algorithm::Ecdsa { .. } | Algorithm::Rsa { .. } => Ok(key),
        other => {
            let problem = format!("identity is of the kind {other}");
            Err(NoCredentials::new(problem, "use ed25519, ecdsa or rsa: ssh-keygen -t ed25519"))
        }
    }
}

fn decrypted(key: &PrivateKey, passphrase: &str) -> Result<PrivateKey, NoCredentials> {
    if let Kdf::Bcrypt { rounds, .. } = key.kdf()
        && *rounds > MAX_ROUNDS
    {
        let problem = format!("the passphrase of identity takes {rounds} rounds");
        let hint = "128 are allowed: ssh-keygen -p -a 100 -f KEY";
        return Err(NoCredentials::new(problem, hint));
    }
    key.decrypt(passphrase).map_err(|_| {
        NoCredentials::new(
            "password is not the passphrase of identity",
            "for a key without one leave password out",
        )
    })
}

fn damaged() -> NoCredentials {
    NoCredentials::new(
        "identity cannot be read as a private key",
        "put the whole file in, with its first and last line: --from-file=identity=KEY",
    )
}

#[cfg(test)]
#[path = "tests/identity.rs"]
mod tests;
