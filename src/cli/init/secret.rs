//! The values of Secrets on the command line: `--from-file` and `--from-literal`, as `kubectl create secret generic` has them.

use std::collections::BTreeMap;
use std::io::Read;

use clap::Args as ClapArgs;

use crate::cli::{Failure, USAGE};

/// Bytes of one value. A Secret has at most so many.
const MAX_BYTES: u64 = 1 << 20;
/// Keys whose values other people of the machine would see among its processes.
const HIDDEN: [&str; 6] =
    ["password", "token", "bearerToken", "identity", "tls.key", "githubAppPrivateKey"];
/// Keys whose values may have several lines. All others lose the line break at their end, which `echo` and editors add.
const LINES: [&str; 6] =
    ["identity", "known_hosts", "ca.crt", "tls.crt", "tls.key", "githubAppPrivateKey"];

/// The values of the Secrets.
#[derive(Debug, ClapArgs)]
pub struct SecretArgs {
    /// A value of the Secret with the credentials, from a file; - is standard input (may be repeated; docs/gitsync.md lists the keys)
    #[arg(long, value_name = "[KEY=]FILE")]
    from_file: Vec<String>,
    /// A value that is no secret, such as username (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    from_literal: Vec<String>,
    /// The same for the Secret with a proxy: username, password
    #[arg(long, value_name = "[KEY=]FILE")]
    proxy_from_file: Vec<String>,
    /// The same for the Secret with a proxy: address, username
    #[arg(long, value_name = "KEY=VALUE")]
    proxy_from_literal: Vec<String>,
}

/// The data of the Secrets. Empty ones are not needed.
pub struct Values {
    /// The credentials.
    pub secret: BTreeMap<String, Vec<u8>>,
    /// The proxy.
    pub proxy: BTreeMap<String, Vec<u8>>,
}

impl SecretArgs {
    /// Reads the files.
    pub fn read(&self) -> Result<Values, Failure> {
        let mut input = Some(());
        let mut read = |files: &[String], literals: &[String]| {
            let mut data = BTreeMap::new();
            for text in files {
                let (key, file) = key_and_file(text)?;
                let shown = if text.contains('=') { format!("{key}=FILE") } else { "FILE".into() };
                let value = content(file, &mut input).map_err(|why| {
                    // Whoever takes it for the value must not find that in a log.
                    let message = format!("{shown}: {why}");
                    let hint =
                        "FILE is the name of a file, or - for standard input; it is not the value";
                    Failure::new(USAGE, message).hint(hint)
                })?;
                add(&mut data, key, value)?;
            }
            for text in literals {
                let (key, value) = text
                    .split_once('=')
                    .ok_or_else(|| Failure::new(USAGE, "--from-literal takes KEY=VALUE"))?;
                if HIDDEN.contains(&key) {
                    let message =
                        format!("{key} on a command line is seen by everybody on this machine");
                    let hint = format!("--from-file {key}=FILE, or {key}=- for standard input");
                    return Err(Failure::new(USAGE, message).hint(hint));
                }
                add(&mut data, key, value.as_bytes().to_vec())?;
            }
            Ok(data)
        };
        let secret = read(&self.from_file, &self.from_literal)?;
        let proxy = read(&self.proxy_from_file, &self.proxy_from_literal)?;
        Ok(Values { secret, proxy })
    }
}

/// The key, which is the name of the file unless one is given.
fn key_and_file(text: &str) -> Result<(&str, &str), Failure> {
    if let Some((key, file)) = text.split_once('=') {
        return Ok((key, file));
    }
    let name = std::path::Path::new(text).file_name().and_then(|name| name.to_str());
    match name {
        Some(name) if text != "-" => Ok((name, text)),
        _ => Err(Failure::new(USAGE, format!("--from-file {text}: no key"))
            .hint("write it like token=-")),
    }
}

fn content(file: &str, input: &mut Option<()>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut take = |reader: &mut dyn Read| reader.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    let read = if file == "-" {
        if input.take().is_none() {
            return Err("standard input was read already".into());
        }
        take(&mut std::io::stdin().lock())
    } else {
        std::fs::File::open(file).and_then(|mut file| take(&mut file))
    };
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it has more than {MAX_BYTES} bytes"));
    }
    Ok(bytes)
}

fn add(data: &mut BTreeMap<String, Vec<u8>>, key: &str, mut value: Vec<u8>) -> Result<(), Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if key.is_empty() || !key.chars().all(is_plain) {
        return Err(Failure::new(USAGE, "a key of a Secret has letters, digits, '-', '_' and '.'"));
    }
    if !LINES.contains(&key) {
        for end in [b'\n', b'\r'] {
            value.pop_if(|last| *last == end);
        }
    }
    if data.insert(key.to_owned(), value).is_some() {
        return Err(Failure::new(USAGE, format!("{key} is given twice")));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    fn args(files: &[&str], literals: &[&str]) -> SecretArgs {
        let all = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        SecretArgs {
            from_file: all(files),
            from_literal: all(literals),
            proxy_from_file: Vec::new(),
            proxy_from_literal: Vec::new(),
        }
    }

    #[test]
    fn d7_values_come_from_files_and_lose_the_line_break_at_their_end() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name).display().to_string();
        std::fs::write(path("token"), "abc\n").expect("written");
        std::fs::write(path("known_hosts"), "a b c\n").expect("written");
        let read = args(&[&path("token"), &path("known_hosts")], &["extra=1"]).read();
        let secret = read.unwrap_or_else(|failure| panic!("{failure:?}")).secret;
        let wanted = [("extra", "1"), ("known_hosts", "a b c\n"), ("token", "abc")];
        assert_eq!(secret, wanted.map(|(k, v)| (k.to_owned(), v.into())).into());
    }

    #[test]
    fn d7_what_is_secret_is_no_argument() {
        let refused = |files: &[&str], literals: &[&str]| {
            args(files, literals).read().err().expect("refused").message
        };
        for key in HIDDEN {
            let message = refused(&[], &[&format!("{key}=s3cret")]);
            assert!(message.contains(key) && !message.contains("s3cret"), "{message}");
        }
        assert!(refused(&["-"], &[]).contains("no key"));
        for file in ["token=s3cret", "s3cret"] {
            let message = refused(&[file], &[]);
            assert!(message.contains("No such file") && !message.contains("s3cret"), "{message}");
        }
        assert!(refused(&["a b=/dev/null"], &[]).contains("a key of a Secret"));
        assert!(refused(&["token=/dev/null", "token=/dev/null"], &[]).contains("twice"));
        assert!(refused(&["token=/dev/zero"], &[]).contains("more than"));
    }
}
