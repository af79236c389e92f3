//! `dependsOn` and objects that move: nobody waits for ever, and nobody goes on too early.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Mark, keys};
use crate::cluster::store::Key;
use crate::definition::Catalog;
use crate::sync::commit::loaded::Loaded;
use crate::sync::io::effect::Call;
use crate::sync::properties::definition;
use crate::sync::properties::repository::wrong;
use crate::sync::simulation::NAMESPACE;
use crate::sync::simulation::operator::Operator;
use crate::sync::simulation::server::{Name, annotation};
use crate::sync::tests::script::{Script, git_sync, id, of_sync};

const GOOD: &str = "True: Succeeded";
const WAITS: &str = "False: DependencyNotReady";
const HANDS_OVER: &str = "False: HandingOver";

/// A folder of each GitSync, with the names that it wants.
type Folders<'a> = [(&'a str, &'a [&'a str])];

fn depends(on: &[&str]) -> Value {
    on.iter().map(|name| json!({"name": name})).collect()
}

/// GitSyncs with what they depend on.
fn start(syncs: &[(&str, &[&str])]) -> Script {
    let made = syncs.iter().map(|(name, on)| {
        let mut sync = git_sync(name, 2);
        sync["spec"]["dependsOn"] = depends(on);
        (*name, sync)
    });
    let mut script = Script::start(made.collect());
    script.run();
    script
}

/// One push that concerns all of these; and they look as often as they are asked to.
fn push(script: &mut Script, folders: &Folders<'_>) {
    for (name, _) in folders {
        if !script.looks(name) {
            script.asks(name);
        }
    }
    for (name, wants) in folders {
        script.finds(name, wants, &[]);
    }
    quiet(script);
}

/// What the poll that is under way reads, of which it has not told yet.
fn read(script: &Script, name: &str, wants: &[&str], faulty: bool) -> Arc<Loaded> {
    let spec = script.operator.polls[name].look.sync.spec.clone();
    let mut catalog = Catalog::default();
    let wants = wants.iter().map(|name| (id(name), definition(&id(name), 1)));
    wants.for_each(|(id, one)| drop(catalog.definitions.insert(id, one)));
    if faulty {
        catalog.problems.push(wrong());
    }
    Arc::new(Loaded::of(&spec, &"f".repeat(40), catalog, None))
}

/// All polls that are under way, and those that come of them, find nothing new.
fn quiet(script: &mut Script) {
    for _ in 0..20 {
        let looking: Vec<_> = script.operator.polls.keys().cloned().collect();
        if looking.is_empty() {
            return;
        }
        for name in looking.iter().filter(|name| script.looks(name)).collect::<Vec<_>>() {
            script.finds_the_same(name);
        }
    }
    panic!("they look again and again");
}

fn all_good(script: &Script, names: &[&str]) {
    for name in names {
        assert_eq!(script.ready(name), GOOD, "{name}: {:#?}", script.status(name).conditions);
    }
}

fn live<'a>(script: &'a Script, name: &str) -> &'a Value {
    script.server.get(&Name::Object(id(name))).expect("an object")
}

/// Whose an object is.
fn owner(script: &Script, name: &str) -> String {
    let mark = annotation(live(script, name), keys::OWNER).and_then(Mark::parse);
    mark.expect("a mark").sync_name
}

fn uid(script: &Script, name: &str) -> String {
    live(script, name)["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

#[test]
fn g11_g22_two_that_wait_for_a_third_one_take_what_it_hands_over_to_both() {
    let mut script = start(&[("one", &[]), ("two", &["one"]), ("three", &["one"])]);
    push(&mut script, &[("one", &["k", "x", "y"]), ("two", &["b"]), ("three", &["c"])]);
    all_good(&script, &["one", "two", "three"]);
    let before = ["x", "y"].map(|name| uid(&script, name));
    push(&mut script, &[("one", &["k"]), ("two", &["b", "x"]), ("three", &["c", "y"])]);
    all_good(&script, &["one", "two", "three"]);
    assert_eq!((owner(&script, "x"), owner(&script, "y")), ("two".into(), "three".into()));
    assert_eq!(["x", "y"].map(|name| uid(&script, name)), before, "the same objects");
}

#[test]
fn g11_g22_what_is_handed_over_to_one_that_waits_for_who_waits_is_no_circle() {
    let mut script = start(&[("one", &[]), ("two", &["one"]), ("three", &["two"])]);
    push(&mut script, &[("one", &["k", "x"]), ("two", &["b"]), ("three", &["c"])]);
    all_good(&script, &["one", "two", "three"]);
    push(&mut script, &[("one", &["k"]), ("two", &["b", "n"]), ("three", &["c", "x"])]);
    all_good(&script, &["one", "two", "three"]);
    assert_eq!((owner(&script, "x"), owner(&script, "n")), ("three".into(), "two".into()));
}

#[test]
fn g11_g22_who_waits_because_of_what_goes_to_somebody_else_is_woken_when_it_does_not_any_more() {
    let syncs: [(&str, &[&str]); 4] =
        [("one", &[]), ("two", &["one"]), ("three", &["one"]), ("four", &[])];
    let mut script = start(&syncs);
    push(&mut script, &[("one", &["k", "x", "y"]), ("two", &[]), ("three", &["c"]), ("four", &[])]);
    all_good(&script, &["one", "two", "three", "four"]);
    // Four waits for nobody of these, and two for somebody else, too: neither takes anything.
    for (name, on) in [("two", depends(&["one", "missing"])), ("four", depends(&["missing"]))] {
        script.edit(&of_sync(name), |sync| sync["spec"]["dependsOn"] = on);
    }
    script.annotate(&Name::Object(id("y")), keys::PRUNE, keys::DISABLED);
    let all: [(&str, &[&str]); 4] =
        [("one", &["k"]), ("two", &["x"]), ("three", &["c", "n"]), ("four", &["y"])];
    push(&mut script, &all);
    assert_eq!(script.ready("one"), HANDS_OVER);
    for name in ["two", "three", "four"] {
        assert_eq!(script.ready(name), WAITS, "{name}");
    }
    assert_eq!(script.objects(), ["c", "k", "x", "y"]);
    // What is left goes to one that waits itself. No object changes by that.
    push(&mut script, &[("four", &[])]);
    assert_eq!((script.ready("one"), script.ready("two")), (HANDS_OVER.into(), WAITS.into()));
    all_good(&script, &["three"]);
    assert_eq!(script.objects(), ["c", "k", "n", "x", "y"]);
    script.edit(&of_sync("two"), |sync| sync["spec"]["dependsOn"] = depends(&["one"]));
    quiet(&mut script);
    all_good(&script, &["one", "two", "three"]);
    assert_eq!(owner(&script, "x"), "two");
}

/// One that hands x over to two, which waits for a third one, too.
fn handing() -> Script {
    let mut script = start(&[("one", &[]), ("two", &["one", "missing"])]);
    push(&mut script, &[("one", &["k", "x"]), ("two", &[])]);
    all_good(&script, &["one"]);
    push(&mut script, &[("one", &["k"]), ("two", &["x"])]);
    assert_eq!((script.ready("one"), script.ready("two")), (HANDS_OVER.into(), WAITS.into()));
    script
}

/// What the giver says of it, and what it says before.
fn hands_over(call: &Call) -> bool {
    let Call::Status { status, .. } = call else { return false };
    let conditions = &status.conditions;
    conditions.iter().any(|c| matches!(&*c.reason, "HandingOver" | "Progressing"))
}

#[test]
fn g11_g22_who_hands_over_what_an_earlier_commit_left_is_still_waited_for() {
    let mut script = handing();
    // What became of its next commit is not known.
    script.loses = Some(hands_over);
    push(&mut script, &[("one", &["k", "l"])]);
    script.edit(&of_sync("two"), |sync| sync["spec"]["dependsOn"] = depends(&["one"]));
    push(&mut script, &[("two", &["n", "x"])]);
    assert_eq!(script.ready("two"), WAITS);
    let said = script.status("two").conditions;
    assert!(said.iter().any(|c| c.message.contains("newest commit")), "{said:?}");
    assert_eq!(script.objects(), ["k", "l", "x"]);
    script.loses = None;
    script.pass(Duration::from_secs(60));
    quiet(&mut script);
    all_good(&script, &["one", "two"]);
    assert_eq!((script.objects(), owner(&script, "x")), (vec!["k", "l", "n", "x"], "two".into()));
}

#[test]
fn g11_g22_who_hands_over_for_an_earlier_spec_is_still_waited_for() {
    let mut script = handing();
    script.loses = Some(hands_over);
    script.edit(&of_sync("one"), |sync| sync["spec"]["prune"]["maxDeletions"] = json!(3));
    quiet(&mut script);
    script.edit(&of_sync("two"), |sync| sync["spec"]["dependsOn"] = depends(&["one"]));
    push(&mut script, &[("two", &["n", "x"])]);
    assert_eq!((script.ready("two"), script.objects()), (WAITS.into(), vec!["k", "x"]));
    script.loses = None;
    script.pass(Duration::from_secs(60));
    quiet(&mut script);
    all_good(&script, &["one", "two"]);
    assert_eq!((script.objects(), owner(&script, "x")), (vec!["k", "n", "x"], "two".into()));
}

/// Apps, which is split: what is below `apps/base` becomes a GitSync of its own, and the rest depends on it.
fn split() -> Script {
    let mut script = start(&[("apps", &[])]);
    push(&mut script, &[("apps", &["k", "x"])]);
    all_good(&script, &["apps"]);
    let mut base = git_sync("base", 2);
    base["spec"]["path"] = json!("apps/base");
    script.server.make(&of_sync("base"), base);
    script.edit(&of_sync("apps"), |sync| {
        sync["spec"]["path"] = json!("apps/team");
        sync["spec"]["dependsOn"] = depends(&["base"]);
    });
    assert!(script.looks("apps") && script.looks("base"));
    script
}

#[test]
fn g11_g22_a_folder_is_split_in_two_of_which_one_depends_on_the_other() {
    for first in ["apps", "base"] {
        for restart in [false, true] {
            let mut script = split();
            let before = uid(&script, "x");
            let wants = |name: &str| if name == "apps" { ["k"] } else { ["x"] };
            let other = if first == "apps" { "base" } else { "apps" };
            script.finds(first, &wants(first), &[]);
            script.finds(other, &wants(other), &[]);
            if restart {
                // It may have found that in the middle.
                script.operator = Operator::new(&script.server, script.now, 2, 48);
                script.run();
            }
            quiet(&mut script);
            all_good(&script, &["apps", "base"]);
            assert_eq!((owner(&script, "k"), owner(&script, "x")), ("apps".into(), "base".into()));
            assert_eq!(uid(&script, "x"), before, "the same object");
        }
    }
}

#[test]
fn g11_g22_a_commit_with_errors_that_waits_gives_nothing_away() {
    let mut script = split();
    script.finds("base", &["x"], &[]);
    let faulty = read(&script, "apps", &["k"], true);
    script.answers("apps", Ok(faulty), true);
    quiet(&mut script);
    assert_eq!(
        (script.ready("base"), script.ready("apps")),
        ("False: ProblemsFound".into(), WAITS.into())
    );
    assert_eq!(owner(&script, "x"), "apps");
    push(&mut script, &[("apps", &["k"])]);
    all_good(&script, &["apps", "base"]);
}

#[test]
fn g11_g22_what_an_earlier_commit_left_is_offered_while_the_newest_one_waits() {
    // It is still there because the brake holds it, or because somebody protects it.
    for protected in [false, true] {
        let mut script = start(&[("one", &["two"]), ("two", &[])]);
        push(&mut script, &[("one", &["a", "b", "x", "y", "z"]), ("two", &["c"])]);
        all_good(&script, &["one", "two"]);
        if protected {
            script.annotate(&Name::Object(id("x")), keys::PRUNE, keys::DISABLED);
            push(&mut script, &[("one", &["a", "b", "y", "z"])]);
            all_good(&script, &["one"]);
        } else {
            push(&mut script, &[("one", &["a", "b"])]);
            assert_eq!(script.ready("one"), "False: PruneHeld");
        }
        let before = uid(&script, "x");
        let rest: &[&str] = if protected { &["a", "n", "y", "z"] } else { &["a", "n"] };
        push(&mut script, &[("one", rest), ("two", &["c", "x"])]);
        all_good(&script, &["two"]);
        assert_eq!((owner(&script, "x"), uid(&script, "x")), ("two".into(), before));
        let expected = if protected { GOOD } else { "False: PruneHeld" };
        assert_eq!((script.ready("one").as_str(), owner(&script, "n")), (expected, "one".into()));
    }
}

#[test]
fn g11_g22_what_is_paused_or_wanted_again_is_not_offered() {
    let mut script = start(&[("one", &["two"]), ("two", &["missing"])]);
    script.edit(&of_sync("one"), |sync| sync["spec"]["dependsOn"] = json!([]));
    push(&mut script, &[("one", &["k", "x", "y", "z"]), ("two", &[])]);
    all_good(&script, &["one"]);
    script.edit(&of_sync("one"), |sync| sync["spec"]["dependsOn"] = depends(&["two"]));
    push(&mut script, &[("one", &["k", "n", "z"]), ("two", &["x", "y", "z"])]);
    assert_eq!(script.ready("one"), WAITS);
    let offers = |script: &Script| {
        let (one, engine) = (Key::new(NAMESPACE, "one"), script.operator.machine.engine());
        ["x", "y", "z"].map(|name| engine.peers.gives(&one, &id(name), "two"))
    };
    assert_eq!(offers(&script), [true, true, false]);
    script.annotate(&Name::Object(id("x")), keys::RECONCILE, keys::DISABLED);
    assert_eq!(offers(&script), [false, true, false]);
    push(&mut script, &[("one", &["k", "n", "y"])]);
    assert_eq!(offers(&script), [false, false, true]);
}

#[test]
fn g22_an_object_is_handed_over_also_while_another_one_is_refused() {
    let mut script = start(&[("one", &[]), ("two", &[])]);
    push(&mut script, &[("one", &["k", "x"]), ("two", &["b"])]);
    let before = uid(&script, "x");
    script.server.refuses = Some("https://7.".into());
    for name in ["one", "two"] {
        script.asks(name);
    }
    script.finds_contents("one", &[(id("k"), 7)]);
    script.finds("two", &["b", "x"], &[]);
    quiet(&mut script);
    assert_eq!((owner(&script, "x"), uid(&script, "x")), ("two".into(), before));
    assert_eq!(script.ready("one"), "False: ProblemsFound");
    all_good(&script, &["two"]);
}

#[test]
fn g22_who_has_what_another_one_has_come_to_want_hears_of_it() {
    let mut script = start(&[("one", &[]), ("two", &[])]);
    push(&mut script, &[("one", &["a", "x"]), ("two", &[])]);
    script.edit(&of_sync("one"), |sync| sync["spec"]["prune"]["enabled"] = json!(false));
    push(&mut script, &[("one", &["a"])]);
    all_good(&script, &["one", "two"]);
    script.asks("two");
    // Its commit is found, one polls its remote, and then that commit has been read.
    let loaded = read(&script, "two", &["x"], false);
    script.asks("one");
    script.finds_the_same("one");
    script.answers("two", Ok(loaded), true);
    assert!(!script.looks("one"));
    all_good(&script, &["one", "two"]);
    assert_eq!(owner(&script, "x"), "two");
}

#[test]
fn g22_a_conflict_with_a_sibling_says_what_helps() {
    let mut script = start(&[("one", &[]), ("two", &[])]);
    push(&mut script, &[("one", &["x"]), ("two", &[])]);
    let stranger = json!({
        "apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI", "metadata": {"name": "s"},
        "spec": {"mode": "External", "external": {"url": "https://m.example"}},
    });
    script.server.make(&Name::Object(id("s")), stranger);
    script.annotate(&Name::Object(id("x")), keys::RECONCILE, keys::DISABLED);
    push(&mut script, &[("one", &[]), ("two", &["s", "x"])]);
    let problems = script.status("two").problems;
    let hints: Vec<_> = problems.iter().filter_map(|problem| problem.hint.as_deref()).collect();
    let [strange, sibling] = *hints else { panic!("{problems:?}") };
    assert!(
        strange.contains("kubectl -n team annotate modelapis s convoke.dev/adopt-by=two"),
        "{strange}"
    );
    assert!(
        sibling.contains("as soon as a commit of GitSync one without errors does not want it"),
        "{sibling}"
    );
    assert!(sibling.contains("convoke.dev/reconcile: disabled"), "{sibling}");
    assert!(!sibling.contains(keys::ADOPT_BY), "that does nothing while GitSync one lives");
    // What it says helps.
    script.edit(&Name::Object(id("x")), |x| {
        x["metadata"]["annotations"].as_object_mut().expect("some").remove(keys::RECONCILE);
    });
    quiet(&mut script);
    assert_eq!(owner(&script, "x"), "two");
}

#[test]
fn g4_g11_while_a_commit_waits_nothing_of_one_counts_that_was_verified_with_other_keys() {
    for other_keys in [false, true] {
        let mut script = start(&[("one", &["two"]), ("two", &[])]);
        push(&mut script, &[("one", &["a"]), ("two", &["b"])]);
        all_good(&script, &["one", "two"]);
        for name in ["one", "two"] {
            script.asks(name);
        }
        // It waits, because nobody knows what the other one wants.
        let mut newest = read(&script, "one", &["n"], false);
        let keys_since = other_keys.then(crate::order::Seq::next);
        Arc::make_mut(&mut newest).keys_since = keys_since;
        script.answers("one", Ok(newest), true);
        script.fails("two");
        assert_eq!(script.ready("one"), WAITS);
        let version = |script: &Script| live(script, "a")["spec"].clone();
        let good = version(&script);
        script.edit(&Name::Object(id("a")), |object| {
            object["spec"]["external"]["url"] = json!("https://by.hand");
        });
        script.pass(Duration::from_secs(1));
        assert_eq!(version(&script) == good, !other_keys, "changes by hand are undone or left");
        // The commit that was applied is read again, and verified.
        script.asks("one");
        assert_eq!(script.operator.polls["one"].look.last.is_some(), other_keys);
    }
}
