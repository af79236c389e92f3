//! What a GitSync takes along, and what it leaves.

use std::sync::Arc;

use super::*;
use crate::api::Kind;
use crate::cluster::live::Live;
use crate::cluster::live::{Facts, LiveObject};
use crate::packed::Pairs;

struct Nobody;

impl Others for Nobody {
    fn exists(&self, _: &str, _: &str, _: &str) -> bool {
        false
    }
    fn wanted_by(&self, id: &ObjectId) -> Option<String> {
        (id.name == "wanted").then(|| "other".to_owned())
    }
    fn gives(&self, _: &str, _: &ObjectId) -> bool {
        false
    }
}

fn sync() -> SyncRef {
    let (uid, namespace, name) = ("uid-1".into(), "team".into(), "main".into());
    SyncRef { uid, namespace, name, generation: 1 }
}

fn live(id: &ObjectId, mark: String, more: &[(&str, &str)], ends: bool) -> Live {
    let annotations = std::iter::once((keys::OWNER.to_owned(), mark))
        .chain(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    let annotations = Pairs::of(Some(&annotations.collect()));
    let finalizers = ends.then(|| "example.com/hold".to_owned()).into_iter().collect();
    let facts = Facts { annotations, deleting: ends, finalizers, ..Facts::default() };
    Arc::new(Object { uid: format!("uid-of-{}", id.name), facts })
}

struct Object {
    uid: String,
    facts: Facts,
}

impl LiveObject for Object {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn version(&self) -> u64 {
        7
    }
    fn facts(&self) -> &Facts {
        &self.facts
    }
}

#[test]
fn g15_only_objects_with_exactly_this_mark_go_and_in_reverse() {
    let mut set = LiveSet::new();
    let mut add = |kind, name: &str, mark: Option<String>, more: &[(&str, &str)], ends| {
        let id = ObjectId::new(kind, name);
        let mark = mark.unwrap_or_else(|| sync().mark(&id).to_string());
        set.insert(id.clone(), live(&id, mark, more, ends));
    };
    add(Kind::ModelAPI, "model", None, &[], false);
    add(Kind::Agent, "agent", None, &[], false);
    add(Kind::ModelAPI, "protected", None, &[(keys::PRUNE, "disabled")], false);
    add(Kind::ModelAPI, "paused", None, &[(keys::RECONCILE, "disabled")], false);
    add(Kind::ModelAPI, "wanted", None, &[], false);
    add(Kind::ModelAPI, "ending", None, &[], true);
    for (name, mark) in [
        ("copied", "uid-1/team/main/ModelAPI/team/model"),
        ("earlier", "uid-0/team/main/ModelAPI/team/earlier"),
        ("another", "uid-2/team/other/ModelAPI/team/another"),
        ("elsewhere", "uid-1/team/main/ModelAPI/far/elsewhere"),
        ("nonsense", "mine"),
    ] {
        add(Kind::ModelAPI, name, Some(mark.to_owned()), &[], false);
    }
    let parting = Parting::of(&set, &sync(), &Nobody);
    let victims: Vec<_> = parting.victims.iter().map(|v| v.id.to_string()).collect();
    assert_eq!(victims, ["Agent/agent", "ModelAPI/model"]);
    let wanted = ObjectId::new(Kind::ModelAPI, "wanted");
    assert_eq!(parting.given, [(wanted, "other".to_owned())]);
    let kept = ["paused", "protected"].map(|name| ObjectId::new(Kind::ModelAPI, name));
    assert_eq!(parting.kept, kept);
    let ending = ObjectId::new(Kind::ModelAPI, "ending");
    assert_eq!(parting.ending, [(ending, "example.com/hold".to_owned())]);
}

#[test]
fn g15_what_others_keep_is_named_and_waited_for_two_minutes() {
    let seconds = Duration::from_secs;
    assert_eq!(wait_for_finalizers(0, seconds(0)), None);
    assert_eq!(wait_for_finalizers(2, seconds(50)), Some(seconds(70)));
    assert_eq!(wait_for_finalizers(2, seconds(120)), None);
    let id = |name| (ObjectId::new(Kind::Agent, name), "a.example/x, b.example/y".to_owned());
    let words = "finalizers keep 2 object(s); first: Agent/one (a.example/x, b.example/y)";
    assert_eq!(keepers(&[id("one"), id("two")]), words);
}
