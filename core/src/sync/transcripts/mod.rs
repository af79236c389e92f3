//! (tests) What an operator does in situations that people meet, written down line by line: every request, status, event and poll,
//! and when it comes back. Each file beside this one is such a transcript. A change that alters one shows there what users will
//! see; `UPDATE_TRANSCRIPTS=1 cargo test -p convoke-core transcripts` writes them anew, and the difference is to be read.
#![allow(clippy::disallowed_methods)] // files and environment are of the test

mod applying;
mod ending;
mod failing;
mod together;
pub(in crate::sync) mod words;

use std::path::Path;

use crate::sync::tests::script::Script;

/// Digests of held deletes by their numbers: what they are made of may change.
fn numbered(text: &str) -> String {
    let digest = regex::Regex::new(r"\b[0-9a-f]{16}\b").expect("a pattern");
    let mut known: Vec<&str> = Vec::new();
    for found in digest.find_iter(text) {
        if !known.contains(&found.as_str()) {
            known.push(found.as_str());
        }
    }
    let mut numbered = text.to_owned();
    for (number, found) in known.into_iter().enumerate() {
        numbered = numbered.replace(found, &format!("digest-{}", number + 1));
    }
    numbered
}

/// Compares what has happened with what is written down under this name.
fn is_as_written(name: &str, script: Script) {
    let text = numbered(&(script.log.expect("it was written down").join("\n") + "\n"));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sync/transcripts");
    let file = file.join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        std::fs::write(&file, &text).expect("the transcript is written");
        return;
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    let same = known.lines().zip(text.lines()).take_while(|(known, is)| known == is).count();
    let from = |text: &str| {
        let lines: Vec<_> =
            text.lines().skip(same).take(12).map(|line| format!("  {line}")).collect();
        lines.join("\n")
    };
    assert!(
        known == text,
        "{name}.txt differs from line {} on; written there:\n{}\nhappened:\n{}",
        same + 1,
        from(&known),
        from(&text)
    );
}
