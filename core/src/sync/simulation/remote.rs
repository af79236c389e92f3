//! Looks at the remote, and what they find.

use std::sync::Arc;

use super::operator::Looking;
use super::{Sim, commit, number};
use crate::api::git_sync::Stages;
use crate::git::Revision;
use crate::sync::commit::loaded::Loaded;
use crate::sync::commit::source_error::SourceError;
use crate::sync::io::poll::Answer;
use crate::sync::io::poll::SourceFailure;
use crate::sync::reasons::SourceReason;

impl Sim {
    /// A poll goes on.
    pub(super) fn looks(&mut self) -> bool {
        let going = self.operator.polls.iter().filter(|(_, looking)| !looking.hangs);
        let names: Vec<_> = going.map(|(name, _)| name.clone()).collect();
        if names.is_empty() {
            return false;
        }
        let name = names[self.dice.roll(names.len())].clone();
        let Some(looking) = self.operator.polls.get_mut(&name) else { return false };
        if looking.seen.is_none() {
            looking.seen = Some(self.head);
            let question = &looking.look.question;
            let of = (question.generation, looking.look.sync.spec.path.clone());
            self.oracle.looks(&name, (self.head, self.tick), of);
            return true;
        }
        let fate = if self.faults { self.dice.roll(60) } else { 60 };
        match fate {
            0 | 1 => {
                looking.hangs = true;
                self.count("look hangs");
                self.say(|| format!("the look of {name} hangs"));
                return true;
            }
            2 => {
                self.count("look panicked");
                self.say(|| format!("the look of {name} panics"));
                self.oracle.polled(&name, None, &self.trees);
                self.operator.polled(&name, Err(SourceError::Panicked));
                return true;
            }
            _ => {}
        }
        let fails = fate < 9;
        if fails {
            self.count("look failed");
        }
        let (found, lost) = self.found(&name, fails);
        let head = found.loaded.as_ref().map(|loaded| number(&loaded.revision.commit));
        self.say(|| {
            let how = if fails { " in vain" } else { "" };
            let knows = head.map_or("nothing".to_owned(), |head| format!("commit {head}"));
            let lost = if lost { ", and has forgotten what was before" } else { "" };
            format!("{name} has looked{how}, and knows {knows}{lost}")
        });
        if self.operator.awaits(&name) {
            self.oracle.polled(&name, (!fails).then_some(lost), &self.trees);
        }
        self.operator.polled(&name, Ok(found));
        true
    }

    /// What a poll finds, and whether nothing is known of what was before it though it has errors.
    fn found(&mut self, name: &str, fails: bool) -> (Answer, bool) {
        let Looking { look, seen, .. } = &self.operator.polls[name];
        let (spec, uid) = {
            let sync = &look.sync;
            (sync.spec.clone(), sync.metadata.uid.clone().unwrap_or_default())
        };
        let (head, question) = (seen.unwrap_or_default(), look.question.clone());
        let (applied, before, last) =
            (look.applied.clone(), look.before.clone(), look.last.clone());
        let (needless, has_objects) = (look.needless.clone(), look.has_objects);
        let known =
            self.operator.read.entry(name.to_owned()).or_insert_with(|| (uid.clone(), None));
        if known.0 != uid {
            *known = (uid, None);
        }
        let mut loaded = known.1.clone().filter(|loaded| loaded.answers(&spec));
        let mut read = |number: usize, before: Option<&Loaded>| {
            let catalog = self.definitions.catalog(&self.trees[number], &spec.path);
            Loaded::of_without(&spec, &commit(number), catalog, before, &needless)
        };
        let recall = |loaded: Loaded| Arc::new(Loaded { recalled: true, ..loaded });
        let (mut failure, mut changed, mut recalled) = (None, false, None);
        if fails {
            let message = "the remote does not answer".to_owned();
            failure = Some(SourceFailure {
                reason: SourceReason::ConnectionFailed,
                message,
                terminal: false,
                distrusts: false,
            });
            if let (None, Some(applied)) = (&loaded, applied) {
                loaded = Some(recall(read(number(&applied.commit), None)));
            }
        } else if loaded
            .as_ref()
            .is_none_or(|old| old.revision.commit != commit(head) || old.lost || old.recalled)
        {
            let mut new = read(head, loaded.as_deref());
            let first = loaded.as_ref().is_none_or(|old| old.lost);
            if first && new.catalog.has_errors() {
                // What was applied before can be read, or cannot for now.
                match before.map(|before| number(&before.commit)) {
                    None if has_objects => new = new.started_after(None),
                    None => {}
                    Some(before) if before == head => {}
                    Some(_) if self.faults && self.dice.one_in(3) => {
                        *self.counts.entry("earlier commit not read").or_default() += 1;
                        new = new.started_after(None);
                    }
                    Some(before) => {
                        self.oracle.read_earlier(name, before);
                        let before = read(before, None);
                        *self.counts.entry("earlier commit read").or_default() += 1;
                        new = new.started_after(Some(&before));
                    }
                }
            }
            loaded = Some(Arc::new(new));
            changed = true;
        }
        // Whoever may have to wait for others keeps what was applied before.
        if let Some(last) = last.filter(|last| !fails && last.commit != commit(head)) {
            recalled = Some(recall(read(number(&last.commit), None)));
        }
        known.1.clone_from(&loaded);
        let lost = loaded.as_ref().is_some_and(|loaded| loaded.lost);
        let attempted = (!fails).then(|| Revision { commit: commit(head), name: "main".into() });
        let stages = Stages::default();
        let webhook = None;
        let (asked, age) = (question.at, std::time::Duration::ZERO);
        (
            Answer {
                question,
                asked,
                age,
                attempted,
                stages,
                changed,
                failure,
                loaded,
                recalled,
                webhook,
            },
            lost,
        )
    }
}
