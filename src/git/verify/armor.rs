//! (pure) Armored blocks: lines of base64 between a first and a last line. Nothing else may be there.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// What stands between the first line and the base64.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Headers and an empty line; at the end a checksum, if it is there.
    OpenPgp,
    /// Nothing.
    Ssh,
}

/// The bytes of one block with this label.
pub(super) fn decode(text: &str, label: &str, style: Style) -> Result<Vec<u8>, String> {
    let mut lines = text.lines().map(str::trim_end);
    if lines.next() != Some(&*format!("-----BEGIN {label}-----")) {
        return Err(format!("it does not begin with BEGIN {label}"));
    }
    let end = format!("-----END {label}-----");
    if style == Style::OpenPgp {
        for line in lines.by_ref() {
            if line.is_empty() {
                break;
            }
            if !line.contains(':') {
                return Err("it has no empty line after its headers".into());
            }
        }
    }
    let (mut base64, mut checksum) = (String::new(), None);
    loop {
        let line = lines.next().ok_or_else(|| format!("it has no line END {label}"))?;
        if line == end {
            break;
        }
        if checksum.is_some() {
            return Err("something follows its checksum".into());
        }
        match line.strip_prefix('=').filter(|_| style == Style::OpenPgp) {
            Some(sum) => checksum = Some(sum),
            None => base64.push_str(line),
        }
    }
    if lines.any(|line| !line.is_empty()) {
        return Err(format!("something follows its line END {label}"));
    }
    let bytes = STANDARD.decode(&base64).map_err(|_| "it is no base64".to_owned())?;
    if let Some(sum) = checksum {
        let sum = STANDARD.decode(sum).map_err(|_| "its checksum is no base64".to_owned())?;
        if sum != crc24(&bytes).to_be_bytes()[1..] {
            return Err("its checksum is wrong".into());
        }
    }
    Ok(bytes)
}

/// The checksum of OpenPGP's armor (RFC 9580, 6.1.1).
fn crc24(bytes: &[u8]) -> u32 {
    let mut sum: u32 = 0x00b7_04ce;
    for byte in bytes {
        sum ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            sum <<= 1;
            if sum & 0x0100_0000 != 0 {
                sum ^= 0x0186_4cfb;
            }
        }
    }
    sum & 0x00ff_ffff
}
