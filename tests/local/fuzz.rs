//! The fuzz targets for some seconds each, on seeds from `fuzz/corpus` and changes of them.
//!
//! `CONVOKE_FUZZ_SECONDS` says how long; without it 15 seconds with `CI=true`, and one otherwise. `CONVOKE_SEED` repeats a run: a failure
//! prints it, with the bytes. Nothing here sees which code runs, so long campaigns use `cargo fuzz` (`fuzz/Cargo.toml`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::pedantic)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "tests read files and the clock"
)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use convoke::fuzzing;

/// What parsers look for.
const WORDS: &[&str] = &[
    "https://",
    "ssh://",
    "git@",
    "..",
    "/",
    "//",
    "%00",
    "%2e",
    "~",
    "@{",
    ":",
    "[::1]",
    "-",
    "\n",
    "\r\n",
    "\0",
    "\t",
    "\u{202e}",
    "=",
    "==",
    "sha256=",
    "refs/heads/",
    ".git",
    ".lock",
    "*",
    "!",
    "|1|",
    "&a",
    "*a",
    "<<:",
    "---",
    "...",
    "? ",
    "!!int",
    "|\n",
    ">-\n",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "'",
    "#",
    "${A}",
    "1e400",
    ".inf",
    "0x",
    "null",
    "convoke.dev/v1alpha1",
    "kind: Agent",
    "\u{feff}",
    "\u{85}",
    "0000",
    "0001",
    "0032",
    "ERR ",
    "PACK",
    "100644 ",
    "40000 ",
    "gpgsig ",
    "-----BEGIN PGP SIGNATURE-----\n",
    "-----END PGP SIGNATURE-----\n",
    "-----BEGIN SSH SIGNATURE-----\n",
    "\ntag v2\n",
];
/// Bytes of the longest input.
const MAX_LEN: usize = 4096;

/// xorshift: the same seed gives the same run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % (sides.max(1) as u64)).unwrap()
    }

    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.roll(len + 1);
        start..start + self.roll(len - start + 1).min(64)
    }

    /// Changes an input once.
    fn change(&mut self, data: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let at = self.roll(data.len() + 1);
        match self.roll(9) {
            0 if !data.is_empty() => {
                let at = self.roll(data.len());
                data[at] ^= 1 << self.roll(8);
            }
            1 if !data.is_empty() => {
                let at = self.roll(data.len());
                data[at] = [0, 1, 0x0a, 0x20, 0x2f, 0x7f, 0x80, 0xc0, 0xff][self.roll(9)];
            }
            2 => drop(data.drain(self.range(data.len()))),
            3 => {
                let part = data[self.range(data.len())].to_vec();
                data.splice(at..at, part);
            }
            4 => {
                let other = &seeds[self.roll(seeds.len())];
                let part = other[self.range(other.len())].to_vec();
                data.splice(at..at, part);
            }
            5 => data.truncate(at),
            6 => {
                let times = 1 << self.roll(9);
                let word = WORDS[self.roll(WORDS.len())].repeat(times);
                data.splice(at..at, word.into_bytes());
            }
            _ => {
                let word = WORDS[self.roll(WORDS.len())];
                data.splice(at..at, word.bytes());
            }
        }
        data.truncate(MAX_LEN);
    }
}

/// Runs a target until its time is over.
fn fuzz(name: &str, target: fn(&[u8])) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let default = if std::env::var("CI").as_deref() == Ok("true") { 5 } else { 1 };
    let time = Duration::from_secs(number("CONVOKE_FUZZ_SECONDS").unwrap_or(default));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let seed = number("CONVOKE_SEED").unwrap_or(now as u64).max(1);
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let mut files: Vec<_> =
        std::fs::read_dir(&dir).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let seeds: Vec<_> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    let (mut dice, mut runs) = (Dice(seed), 0_u64);
    let began = Instant::now();
    while began.elapsed() < time {
        // First the seeds as they are.
        let mut data = match seeds.get(usize::try_from(runs).unwrap()) {
            Some(seed) => seed.clone(),
            None => {
                let mut data = seeds[dice.roll(seeds.len())].clone();
                for _ in 0..=dice.roll(8) {
                    dice.change(&mut data, &seeds);
                }
                data
            }
        };
        data.shrink_to_fit();
        if catch_unwind(AssertUnwindSafe(|| target(&data))).is_err() {
            panic!(
                "{name}, run {runs} of CONVOKE_SEED={seed}: {:?}",
                String::from_utf8_lossy(&data)
            );
        }
        runs += 1;
    }
    assert!(runs > seeds.len() as u64, "{runs} runs");
    println!("{name}: {runs} runs, CONVOKE_SEED={seed}");
}

#[test]
fn v01_v25_fuzz_url() {
    fuzz("url", fuzzing::url);
}

#[test]
fn g2_fuzz_origins() {
    fuzz("origins", fuzzing::origins);
}

#[test]
fn v13_fuzz_reference() {
    fuzz("reference", fuzzing::reference);
}

#[test]
fn v14_v18_fuzz_path() {
    fuzz("path", fuzzing::path);
}

#[test]
fn g2_fuzz_credentials() {
    fuzz("credentials", fuzzing::credentials);
}

#[test]
fn v60_fuzz_webhook() {
    fuzz("webhook", fuzzing::webhook);
}

#[test]
fn b5_fuzz_registry() {
    fuzz("registry", fuzzing::registry);
}

#[test]
fn g7_fuzz_definition() {
    fuzz("definition", fuzzing::definition);
}

#[test]
fn v23_fuzz_signature() {
    for file in std::fs::read_dir("fuzz/corpus/signature").unwrap() {
        let file = file.unwrap().path();
        assert!(fuzzing::is_signed(&std::fs::read(&file).unwrap()), "{}", file.display());
    }
    fuzz("signature", fuzzing::signature);
}

#[test]
fn g4_fuzz_keys() {
    fuzz("keys", fuzzing::keys);
}

#[test]
fn v14_v15_fuzz_tree() {
    fuzz("tree", fuzzing::tree);
}

#[test]
fn g3_fuzz_protocol() {
    fuzz("protocol", fuzzing::protocol);
}

#[test]
fn g3_fuzz_pack() {
    fuzz("pack", fuzzing::pack);
}
