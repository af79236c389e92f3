//! Requests and replies on their way, and what becomes of them.

use std::time::Duration;

use super::Sim;
use super::operator::{Flying, Orphaned};
use super::oracle::{self, Writer};
use super::server;
use crate::cluster::call_error::CallError;
use crate::cluster::write::Mode;
use crate::sync::io::effect::{Call, Replied, Request};

/// Who is written to when a reply does not come.
const PATIENCE: Duration = Duration::from_secs(20);

impl Sim {
    /// A reconcile says what it wants to have done.
    pub(super) fn asks(&mut self) -> bool {
        if self.hungry.is_empty() {
            return false;
        }
        let at = self.dice.roll(self.hungry.len());
        let name = self.hungry[at].clone();
        self.oracle.reads(&name, &self.operator, &mut self.counts);
        self.oracle.moment(&name, &self.operator, &self.trees);
        let (asked, more) = self.operator.pull(&name);
        let asked = asked.map(|flying| flying.asked.clone());
        if !more {
            self.hungry.swap_remove(at);
        }
        for _ in 0..std::mem::take(&mut self.operator.given_up) {
            self.count("hanging look given up");
        }
        if let Some(asked) = asked {
            self.tick += 1;
            self.say(|| format!("{name} asks: {}", oracle::short(&asked.call)));
            let truth = (&self.server, &*self.trees);
            self.oracle.asked(&name, &asked, &self.operator, truth, &mut self.counts);
        }
        true
    }

    /// A request gets to the server.
    pub(super) fn arrives(&mut self) -> bool {
        let waits = |flying: &Flying| flying.reply.is_none();
        let waiting = self.operator.flying.iter().filter(|flying| waits(flying)).count();
        if waiting == 0 {
            return false;
        }
        let nth = self.dice.roll(waiting);
        let mut flying = self.operator.flying.iter().enumerate().filter(|(_, one)| waits(one));
        let Some((at, one)) = flying.nth(nth) else { return false };
        let (sync, pass, asked) = (one.sync.clone(), one.pass, one.asked.clone());
        let fate = if self.faults { self.dice.roll(48) } else { 48 };
        let creates = matches!(&asked.call, Call::Apply { mode: Mode::Create, .. });
        let finds = matches!(&asked.call, Call::FindAccount(_));
        let reply = match fate {
            0 => {
                self.count("request lost");
                Err(CallError::Deadline(PATIENCE))
            }
            1 => {
                self.count("reply lost");
                let _lost = self.carry(&sync, Writer::Coroutine(pass), &asked);
                Err(CallError::Deadline(PATIENCE))
            }
            2 => {
                self.count("request late");
                self.late.push(Orphaned { sync, asked });
                Err(CallError::Deadline(PATIENCE))
            }
            3 => {
                self.count("server overloaded");
                Err(server::overloaded())
            }
            4..=7 if creates => {
                self.count("quota in conflict (409)");
                Err(server::quota_in_conflict())
            }
            8..=11 if creates => {
                self.count("quota exceeded (403)");
                Err(server::quota_exceeded())
            }
            _ => self.carry(&sync, Writer::Coroutine(pass), &asked),
        };
        if let Err(error) = &reply {
            if error.is_conflict() && !error.is_about_a_quota() {
                self.count("conflict (409)");
            }
            if error.is_denied() {
                self.count("refused (422)");
            }
            if error.is_about_service_accounts() {
                self.count("operator may not act as the account (403)");
            } else if error.is_missing_right() {
                self.count("right is missing (403)");
            }
            if error.is_gone() && finds {
                self.count("account is missing (404)");
            }
        }
        self.operator.flying[at].reply = Some(reply);
        true
    }

    /// The server does what it is asked for.
    fn carry(&mut self, sync: &str, writer: Writer, asked: &Request) -> Replied {
        self.tick += 1;
        let Request { account, call } = asked;
        self.oracle.arrives((sync, writer), asked, &self.server, &mut self.counts);
        let before = self.server.version;
        let reply = self.server.answer(account.as_ref(), call);
        if self.server.version != before {
            self.oracle.arrived((sync, writer), call, &self.server, &mut self.counts);
            if matches!(call, Call::Finalizers { .. }) {
                self.observe();
            }
        }
        reply
    }

    /// A reply gets back.
    pub(super) fn lands(&mut self) -> bool {
        let landed = |flying: &Flying| flying.reply.is_some();
        let landing = self.operator.flying.iter().filter(|flying| landed(flying)).count();
        if landing == 0 {
            return false;
        }
        let nth = self.dice.roll(landing);
        let mut flying = self.operator.flying.iter().enumerate().filter(|(_, one)| landed(one));
        let Some((at, _)) = flying.nth(nth) else { return false };
        let Flying { sync, number, reply, asked, .. } = self.operator.flying.swap_remove(at);
        if let Some(reply) = reply {
            if reply.is_ok() {
                self.oracle.answered(&sync, &asked.call);
            }
            self.operator.machine.reply(&sync, number, reply);
        }
        if !self.hungry.contains(&sync) {
            self.hungry.push(sync);
        }
        true
    }

    /// A request of somebody who does not wait any more arrives.
    pub(super) fn comes_late(&mut self) -> bool {
        if self.late.is_empty() || (self.faults && !self.dice.one_in(4)) {
            return false;
        }
        let at = self.dice.roll(self.late.len());
        let Orphaned { sync, asked } = self.late.swap_remove(at);
        self.count("came late");
        self.say(|| format!("comes late from {sync}: {}", oracle::short(&asked.call)));
        let _nobody = self.carry(&sync, Writer::Late, &asked);
        true
    }
}
