//! A snapshot that shares with the one before what did not change: it is what a snapshot made anew would be.

use std::collections::BTreeMap;

use convoke::definition::tree::TreeEntry;

use super::*;

impl Dice {
    fn path(&mut self) -> String {
        // Git sorts folders as if their names ended with a slash: `a-b` before `a/`, `a.b` too, `a0` after.
        let parts = ["a", "a-b", "a.b", "a0", "b", "prod", "prod-x"];
        let top = if self.roll(3) == 0 { "" } else { "prod/" };
        let depth = 1 + self.roll(3);
        let below: Vec<_> = (0..depth).map(|_| parts[self.roll(parts.len())]).collect();
        format!("{top}{}", below.join("/"))
    }
}

fn listed(snapshot: &Snapshot) -> BTreeMap<String, TreeEntry> {
    snapshot.entries().iter().map(|entry| (entry.path.clone(), entry.clone())).collect()
}

#[tokio::test]
async fn g7_a_snapshot_after_another_one_is_what_a_new_one_would_be() {
    let world = World::new().await;
    let few = Limits { files: 12, depth: 3, ..Limits::default() };
    let cases = [("", Limits::default()), ("prod", Limits::default()), ("prod", few)];
    let with = |(_, limits): &(_, Limits)| world.remote_with(|options| options.limits = *limits);
    let remotes: Vec<_> = cases.iter().map(with).collect();
    let mut before: Vec<Option<std::sync::Arc<Snapshot>>> = vec![None; cases.len()];
    let mut dice = Dice(0x1234_5678_9abc_def1);
    let (mut told, mut cut) = (0, 0);
    for round in 0..40 {
        let mut change = world.repo.change("main").file("prod/always", "x");
        for _ in 0..=dice.roll(4) {
            let path = dice.path();
            change = match dice.roll(8) {
                // A file becomes a folder, or a folder a file.
                0..=3 => change.delete(&path).file(&path, format!("{}", dice.roll(5))),
                4 => change.delete(&path).symlink(&path, "a"),
                _ => change.delete(&path),
            };
        }
        change.commit("change");
        for (((path, limits), remote), before) in cases.iter().zip(&remotes).zip(&mut before) {
            let now = sync(remote, path).await.unwrap();
            let fresh = open_local(&world.repo.dir, "main", path, *limits).unwrap();
            assert_eq!(now.entries(), fresh.entries(), "round {round}");
            assert_eq!(now.problems(), fresh.problems(), "round {round}");
            for _ in 0..20 {
                let path = dice.path();
                assert_eq!(now.lookup(&path), fresh.lookup(&path), "round {round}: {path}");
                assert_eq!(now.tree_id(&path), fresh.tree_id(&path), "round {round}: {path}");
            }
            cut += usize::from(!now.problems().is_empty());
            if let (Some(before), Some(changes)) = (before.as_ref(), now.changes()) {
                told += 1;
                assert_eq!(Some(changes.since), before.number());
                let (old, new) = (listed(before), listed(&now));
                let told: BTreeMap<_, _> = changes
                    .entries
                    .iter()
                    .map(|change| (change.path.clone(), (change.old, change.new.clone())))
                    .collect();
                assert_eq!(told.len(), changes.entries.len(), "each once");
                let paths = old.keys().chain(new.keys());
                let differ = paths.filter(|path| old.get(*path) != new.get(*path));
                let kind = |path| old.get(path).map(|entry: &TreeEntry| entry.kind);
                let differ =
                    differ.map(|path| (path.clone(), (kind(path), new.get(path).cloned())));
                assert_eq!(told, differ.collect(), "round {round}");
                let commits = [before, &now].map(|snapshot| snapshot.commit().id.clone());
                let outside = |commit: &String| {
                    let all = world.repo.git(&["ls-tree", "-r", commit]);
                    let lines = all.lines().map(str::to_owned);
                    lines
                        .filter(|line| !path.is_empty() && !line.contains("\tprod/"))
                        .collect::<Vec<_>>()
                };
                let elsewhere = outside(&commits[0]) != outside(&commits[1]);
                assert_eq!(changes.elsewhere, elsewhere, "round {round}");
            }
            *before = Some(now);
        }
    }
    // So that this test cannot come to test nothing.
    assert!(told > 60 && cut > 0, "{told} told, {cut} cut");
}
