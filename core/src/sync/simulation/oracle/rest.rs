//! How it ends: once nobody interferes, the cluster is as Git says.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::files::{folder_of, mark_of};
use super::{Counts, Oracle, Place, SYNCS};
use crate::api::ObjectId;
use crate::api::keys;
use crate::sync::properties::repository::{Health, Tree, spec};
use crate::sync::simulation::commit;
use crate::sync::simulation::server::{Name, Server, annotation, is_deleting, is_paused, text};

impl Oracle {
    /// What is broken and known heals: an object whose file cannot be read any more is as it was applied last, whatever
    /// somebody has done to it.
    pub fn heals(&self, server: &Server, tree: &Tree, counts: &mut Counts) {
        let suspended = |other: &str| {
            let other = server.get(&Name::Sync(other.into()));
            other.is_some_and(|sync| sync["spec"]["suspend"] == true)
        };
        for ((name, id), Place { file, content, is_past }) in &self.files {
            let shared = SYNCS.iter().any(|(other, _, _)| {
                other != name && self.files.contains_key(&((*other).to_owned(), id.clone()))
            });
            if *is_past || shared {
                // Of two that had it and cannot read it any more, nobody knows who is to make it.
                continue;
            }
            if SYNCS.iter().any(|(other, _, _)| suspended(other)) {
                // One that is suspended may have wanted it when it polled last: then it is not made again.
                continue;
            }
            let Some(sync) = server.get(&Name::Sync(name.clone())) else { continue };
            let plain = !is_deleting(sync)
                && sync["spec"]["suspend"] != true
                && sync["spec"]["drift"] != "Report"
                && sync["spec"]["failurePolicy"] != "Atomic"
                && sync["spec"]["dependsOn"].is_null()
                && sync["spec"]["interval"].is_string();
            let broken = tree.files.get(file).filter(|file| file.health != Health::Good);
            let hides = broken.is_some_and(|file| file.objects.contains_key(id));
            let folder = folder_of(sync);
            let elsewhere = tree.files.iter().filter(|(path, _)| *path != file);
            let elsewhere = elsewhere.filter(|(_, file)| file.objects.contains_key(id)).count() > 0;
            if !plain || !hides || elsewhere || !file.starts_with(folder) {
                continue;
            }
            if self.applied.get(id).is_none_or(|(who, _)| who != name) {
                continue;
            }
            let live = server.get(&Name::Object(id.clone()));
            let uid = text(sync, "/metadata/uid");
            let mark = mark_of(uid, name, id);
            if live.is_some_and(|live| {
                is_paused(live)
                    || is_deleting(live)
                    || annotation(live, keys::OWNER) != Some(&*mark)
            }) {
                continue;
            }
            *counts.entry("quarantined object looked at").or_default() += 1;
            let good = spec(id, *content);
            let found = live.map(|live| &live["spec"]);
            assert_eq!(found, Some(&good), "{id} of {name} does not heal");
        }
    }

    /// What is not yet as it is at rest: the cluster is as Git says, and the statuses say so.
    pub fn unrest(
        &self,
        syncs: &[(&str, &str, &str)],
        server: &Server,
        trees: &[Tree],
        head: usize,
    ) -> Option<String> {
        let tree = &trees[head];
        let mut wanted = BTreeMap::new();
        for (name, _, _) in syncs {
            let Some(sync) = server.get(&Name::Sync((*name).into())) else {
                return Some(format!("{name} is not there"));
            };
            let status = &sync["status"];
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
            let revision = status["lastAppliedRevision"].as_str().unwrap_or_default();
            if ready.next().is_none_or(|ready| ready["status"] != "True")
                || !revision.ends_with(&commit(head))
                || status["history"][0]["outcome"] != "Applied"
                || status["observedGeneration"] != sync["metadata"]["generation"]
            {
                return Some(format!("{name} is not Ready, or not of the newest commit"));
            }
            let uid = text(sync, "/metadata/uid");
            let count = status["pendingPrune"]["count"].as_i64().unwrap_or_default();
            let waits = count > 0 || !status["approvedPrune"].is_null();
            let lists = ["quarantined", "paused", "drifted", "orphans"];
            let left =
                lists.iter().find(|list| !status[**list].as_array().is_none_or(Vec::is_empty));
            if let Some(left) = left.or_else(|| waits.then_some(&"pendingPrune")) {
                return Some(format!("{name} still tells of {left}"));
            }
            for (id, content) in tree.below(folder_of(sync)).flat_map(|(_, file)| &file.objects) {
                let mark = mark_of(uid, name, id);
                wanted.insert(id.clone(), (mark, spec(id, *content)));
            }
            let total = wanted.values().filter(|(mark, _)| mark.starts_with(uid)).count();
            if status["objects"]["total"].as_u64() != Some(total as u64) {
                return Some(format!("{name} has {total} objects: {}", status["objects"]));
            }
        }
        let live: BTreeMap<_, _> = server
            .objects()
            .map(|(id, object): (&ObjectId, &Arc<Value>)| {
                let mark = annotation(object, keys::OWNER).unwrap_or_default().to_owned();
                (id.clone(), (mark, object["spec"].clone()))
            })
            .collect();
        let differs = wanted.iter().find(|(id, want)| live.get(id) != Some(want));
        let left = live.iter().find(|(id, _)| !wanted.contains_key(id));
        differs
            .or(left)
            .map(|(id, _)| format!("{id}: {:?}, and not {:?}", live.get(id), wanted.get(id)))
    }
}
