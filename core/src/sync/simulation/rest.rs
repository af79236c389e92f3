//! What must hold when nothing is going on: now and then, and in the end.

use std::time::{Duration, Instant};

use super::operator::WATCHES;
use super::server::Name;
use super::{SYNCS, Sim};

impl Sim {
    /// Whether nothing goes on and nothing is about to.
    pub(super) fn is_quiet(&self) -> bool {
        let operator = &self.operator;
        let soon = operator.next_due().is_some_and(|due| due <= self.now + Duration::from_secs(2));
        let shown = (0..WATCHES.len()).all(|watch| operator.has_shown(&self.server, watch));
        let looks = operator.polls.values().any(|looking| !looking.hangs);
        let works = !operator.flying.is_empty() || !operator.active.is_empty() || looks;
        let waits = !self.hungry.is_empty() || !self.late.is_empty();
        shown && !soon && !works && !waits && operator.failures.is_empty()
    }

    /// What stands in the statuses is true whenever nothing goes on; and who is asked once more finds nothing to do.
    pub(super) fn quiet(&mut self) {
        if !self.is_quiet() {
            return;
        }
        for (name, _, _) in SYNCS {
            let lie = self.oracle.stands(name, &self.server, &self.trees);
            assert!(lie.is_none(), "{name} is Ready, and {}", lie.unwrap_or_default());
        }
        if self.dice.one_in(3) {
            self.rebuilt();
        }
        if !self.faults && self.dice.one_in(4) {
            self.says_all();
        }
    }

    /// While nothing goes on: who is Ready and is asked once more has nothing else to say.
    pub(super) fn says_all(&mut self) {
        // Statuses that say something else may tell how long something lasts, or wait for others.
        let ready: Vec<_> = self.syncs.iter().filter(|(name, _, _)| self.is_ready(name)).collect();
        let before = self.server.version;
        for (name, _, _) in &ready {
            self.operator.wake(name, Duration::ZERO);
        }
        let stood: Vec<_> = ready.iter().map(|(name, _, _)| self.status(name)).collect();
        let late: Vec<_> = ready.iter().map(|(name, _, _)| self.oracle.is_late(name)).collect();
        self.drain();
        for ((name, _, _), (stood, late)) in ready.iter().zip(stood.iter().zip(late)) {
            let now = self.status(name);
            let whose = if late { "of somebody who is no more" } else { "" };
            assert!(now == *stood, "a status {whose} stood for {name}: {stood:#}, and not {now:#}");
        }
        if ready.len() == self.syncs.len() {
            let written = self.server.version - before;
            assert_eq!(written, 0, "nothing had changed, and {written} writes were made");
            self.count("nothing to do when woken");
        }
    }

    /// What all statuses say.
    fn statuses(&self) -> String {
        let one = |(name, _, _): &(&str, _, _)| format!("\n{name}: {:#}", self.status(name));
        self.syncs.iter().map(one).collect()
    }

    pub(super) fn status(&self, name: &str) -> serde_json::Value {
        let sync = self.server.get(&Name::Sync(name.into()));
        sync.map(|sync| sync["status"].clone()).unwrap_or_default()
    }

    fn is_ready(&self, name: &str) -> bool {
        let status = self.status(name);
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
    }

    /// Nobody interferes any more, and what people hold up they let go: everything must come to rest, as Git says.
    pub(super) fn settle(&mut self) {
        self.faults = false;
        self.half_calm();
        self.calm();
        self.rest();
        self.memory();
        self.examines();
        self.all_end();
    }

    /// Goes on until everything is as Git says; then it stays so.
    pub(super) fn rest(&mut self) {
        // Contention over an object pauses for a quarter of an hour at most.
        let limit = self.now + Duration::from_secs(3600);
        loop {
            self.drain();
            let approved = self.approve_all();
            let unrest = self.oracle.unrest(self.syncs, &self.server, &self.trees, self.head);
            // What has just changed is looked at a moment later.
            let soon = |due: Instant| due <= self.now + Duration::from_secs(5);
            let more = approved || self.operator.next_due().is_some_and(soon);
            let Some(unrest) = unrest.or_else(|| more.then(String::new)) else { break };
            let goes_on = self.now < limit && self.pass_time(Duration::from_secs(700));
            assert!(goes_on, "no rest: {unrest}{}", self.statuses());
        }
        // From now on nobody writes, and polls happen at the interval only.
        let (version, looked) = (self.server.version, self.operator.looked.clone());
        let until = self.now + Duration::from_secs(150);
        while self.now < until && self.pass_time(Duration::from_secs(700)) {
            self.drain();
        }
        assert_eq!(self.server.version, version, "a settled namespace is written to");
        for (name, count) in &self.operator.looked {
            let looks = count - looked.get(name).copied().unwrap_or_default();
            assert!(looks <= 4, "{name} has looked {looks} times in three minutes");
        }
    }

    /// Nobody interferes for a while, and what is broken in Git stays broken.
    fn half_calm(&mut self) {
        let down = self.operator.watches.iter().any(|watch| watch.is_down);
        if self.server.refuses.is_some() || down || self.server.rights.are_missing() {
            return;
        }
        self.say(|| "half calm".into());
        let until = self.now + Duration::from_secs(400);
        self.drain();
        while self.now < until && self.pass_time(Duration::from_secs(400)) {
            self.drain();
        }
        self.quiet();
        self.oracle.heals(&self.server, &self.trees[self.head], &mut self.counts);
    }
}
