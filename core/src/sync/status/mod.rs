//! The status of a GitSync: what it says, its one writer, and the events that go with it.
//!
//! | module | what |
//! |---|---|
//! | [`report`] | what one reconcile has to say: the input of a status |
//! | [`build`] | from the status before and a report to the new status |
//! | [`verdict`] | reason and message of the condition `Ready` after a plan was applied |
//! | [`held_deletes`] | what a status says of deletes that are held or approved |
//! | [`history`] | the entries of the history |
//! | `limits` | how long lists, messages and a whole status may be |
//! | [`plan_result`] | what applying a plan has led to |
//! | [`writer`] | the one writer of the statuses of a namespace |
//! | [`last_written`] | what was written last, so that a status that another writer overwrote is rewritten |
//! | [`events`] | events about the GitSync and about single objects |
//! | [`memory`] | what is kept between two reports |
//! | [`webhook`] | what a status says about `spec.webhook` |

pub mod build;
pub mod events;
pub mod held_deletes;
pub mod history;
pub mod last_written;
mod limits;
pub mod memory;
pub mod plan_result;
pub mod report;
pub mod verdict;
pub mod webhook;
pub mod writer;
