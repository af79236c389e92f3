//! The condition `Verified` over time.

use std::sync::Arc;

use super::*;
use crate::sync::commit::loaded::Loaded;

fn verified(script: &Script) -> String {
    let conditions = script.status("one").conditions;
    let found = conditions.iter().find(|condition| condition.type_ == "Verified");
    found.map(|one| format!("{} {}", one.status, one.reason)).unwrap_or_default()
}

/// What the poll that is under way reads.
fn signed(script: &mut Script, by: &str) -> Arc<Loaded> {
    let mut loaded = script.commit("one", crate::definition::Catalog::default());
    Arc::make_mut(&mut loaded).info.signer = Some(by.to_owned());
    loaded
}

#[test]
fn g4_a_signature_is_told_of_the_commit_and_the_place_that_it_is_of() {
    let mut sync = git_sync("one", 2);
    sync["spec"]["verify"] = json!({"secretRef": {"name": "keys"}});
    let mut script = Script::start(vec![("one", sync)]);
    script.run();
    let loaded = signed(&mut script, "key A");
    script.answers("one", Ok(loaded), true);
    assert_eq!(verified(&script), "True Verified");
    // The server does not answer: that commit was verified all the same.
    script.asks("one");
    script.fails("one");
    assert_eq!(verified(&script), "True Verified");
    // Another repository, of which nothing was read. What is known is of the one before.
    script.edit_spec("one", "url", json!("https://git.example.com/other.git"));
    assert!(script.looks("one"));
    script.fails("one");
    assert_eq!(verified(&script), "Unknown ConnectionFailed");
    script.asks("one");
    let loaded = signed(&mut script, "key B");
    script.answers("one", Ok(loaded), true);
    assert_eq!(verified(&script), "True Verified");
    // The keys were taken away, and the server does not answer.
    script.asks("one");
    script.read.remove("one");
    script.fails("one");
    assert_eq!(verified(&script), "Unknown ConnectionFailed");
}
