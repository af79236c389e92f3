//! Messages that name the command that helps.

use super::*;

#[test]
fn b8_what_the_trigger_holds_names_the_command_that_builds_it() {
    let off = || Decision::Wait(Wait::TriggerOff);
    let (one, empty) = (key("1"), AgentBuildStatus::default());
    let text = "nothing was built yet, and trigger.onCommit is false; to build it: convoke rebuild build/reviewer -n team";
    let new = status(&empty, &meta(), &about(&one, off(), None), Builder::Available, at(1));
    assert_eq!(new.message.as_deref(), Some(text));
    let built = next(&empty, &one, Some(&run(&one, built())), Builder::Available, 1);
    let two = key("2");
    let found = about(&two, off(), None);
    let new = status(&built, &meta(), &found, Builder::Available, at(1));
    let text = new.message.unwrap_or_default();
    assert!(text.starts_with("what is wanted is not what was built last, and "), "{text}");
}

#[test]
fn b8_a_build_that_was_cancelled_before_it_began_names_the_command_that_builds_it() {
    let one = key("1");
    let empty = AgentBuildStatus::default();
    let found = about(&one, Decision::Wait(Wait::Cancelled), None);
    let new = status(&empty, &meta(), &found, Builder::Available, at(1));
    let text =
        "it was cancelled before it began; to build it: convoke rebuild build/reviewer -n team";
    assert_eq!(new.message.as_deref(), Some(text));
    assert_eq!(condition(&new, "Stalled"), Some(("True", "Cancelled")));
}
