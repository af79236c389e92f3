//! (pure) Splits commits and tags into what is signed and the signature, as Git does.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use gix::hash::Kind;

use super::Unverified;

/// Bytes of the largest signature.
const MAX_SIGNATURE_BYTES: usize = 64 << 10;
/// Bytes of the largest tag.
pub(crate) const MAX_TAG_BYTES: u64 = 1 << 20;

/// How signatures begin.
pub(super) const PGP: &str = "-----BEGIN PGP SIGNATURE-----";
pub(super) const SSH: &str = "-----BEGIN SSH SIGNATURE-----";
pub(super) const X509: &str = "-----BEGIN SIGNED MESSAGE-----";
/// The same for one that Git knows besides.
const MESSAGE: &str = "-----BEGIN PGP MESSAGE-----";

/// The bytes that are signed, and the signature.
pub(super) struct Signed {
    pub payload: Vec<u8>,
    pub signature: Option<Vec<u8>>,
}

fn malformed<T>(why: impl Into<String>) -> Result<T, Unverified> {
    Err(Unverified::Malformed(why.into()))
}

/// Splits a commit. Its signature is the value of a header, which is not signed itself. A repository of SHA-256 has a header of its
/// own, so that one commit may have both; the other one is left out, too.
pub(super) fn commit(bytes: &[u8], hash: Kind) -> Result<Signed, Unverified> {
    let header = if hash == Kind::Sha256 { "gpgsig-sha256" } else { "gpgsig" };
    split_headers(bytes, header)
}

/// Splits a tag. Its signature is the end of its body.
pub(super) fn tag(bytes: &[u8]) -> Result<Signed, Unverified> {
    let mut begins = line_starts(bytes).filter(|at| {
        let begins = |with: &str| bytes[*at..].starts_with(with.as_bytes());
        [PGP, SSH, X509, MESSAGE].into_iter().any(begins)
    });
    let (first, second) = (begins.next(), begins.next());
    if second.is_some() {
        return malformed("there is more than one");
    }
    let (payload, signature) = bytes.split_at(first.unwrap_or(bytes.len()));
    if signature.len() > MAX_SIGNATURE_BYTES {
        return malformed(format!("it has more than {MAX_SIGNATURE_BYTES} bytes"));
    }
    // Git signs neither of these headers, which are for the other hash.
    let payload = split_headers(payload, "")?.payload;
    Ok(Signed { payload, signature: first.map(|_| signature.to_vec()) })
}

/// Where the lines begin.
fn line_starts(bytes: &[u8]) -> impl Iterator<Item = usize> {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    std::iter::once(0).chain(ends)
}

/// What becomes of a header and of the lines that continue it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Header {
    Signed,
    Signature,
    LeftOut,
}

/// Takes the headers with signatures out, and gives the value of the one of this name.
fn split_headers(bytes: &[u8], wanted: &str) -> Result<Signed, Unverified> {
    let mut payload = Vec::with_capacity(bytes.len());
    let mut signature: Option<Vec<u8>> = None;
    let (mut header, mut left_out) = (Header::Signed, false);
    let mut rest = bytes;
    while !rest.is_empty() && rest[0] != b'\n' {
        let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
        let (line, after) = rest.split_at(end);
        rest = after;
        let mut value = line.strip_prefix(b" ");
        if value.is_none() {
            let (name, first) = line.split_at(line.iter().position(|b| *b == b' ').unwrap_or(end));
            header = match name {
                b"gpgsig" | b"gpgsig-sha256" if name == wanted.as_bytes() => Header::Signature,
                b"gpgsig" | b"gpgsig-sha256" => Header::LeftOut,
                name if name.starts_with(b"gpgsig") => {
                    return malformed("its header has an unknown name");
                }
                _ => Header::Signed,
            };
            let twice = (header == Header::Signature && signature.is_some())
                || (header == Header::LeftOut && std::mem::replace(&mut left_out, true));
            if twice && !wanted.is_empty() {
                return malformed("there is more than one");
            }
            value = first.get(1..);
        }
        match header {
            Header::Signed => payload.extend_from_slice(line),
            Header::LeftOut => {}
            Header::Signature => {
                let text = signature.get_or_insert_default();
                text.extend_from_slice(value.unwrap_or_default());
                if text.len() > MAX_SIGNATURE_BYTES {
                    return malformed(format!("it has more than {MAX_SIGNATURE_BYTES} bytes"));
                }
            }
        }
    }
    payload.extend_from_slice(rest);
    Ok(Signed { payload, signature })
}

/// Checks that a tag has this name and is of this commit. The bytes are those that were signed.
pub(super) fn names(tag: &[u8], name: &str, commit: &str) -> Result<(), Unverified> {
    let mut lines = tag.split(|byte| *byte == b'\n');
    let mut value = |key: &str| {
        let line = std::str::from_utf8(lines.next()?).ok()?;
        line.strip_prefix(key)?.strip_prefix(' ').map(str::to_owned)
    };
    let (Some(object), Some(kind), Some(own)) = (value("object"), value("type"), value("tag"))
    else {
        return malformed("the tag has other headers than Git writes");
    };
    let other = |why: String| Err(Unverified::OtherTag(why));
    if own != name {
        return other(format!("the signed tag is named {own:?}"));
    }
    if kind != "commit" {
        return other(format!("the signed tag is of a {kind}, not of a commit"));
    }
    if object != commit {
        return other(format!("the signed tag is of commit {object}"));
    }
    Ok(())
}
