//! Peers: the other GitSyncs of the namespace. What each wants, hands over and waits for.
//!
//! | module | what |
//! |---|---|
//! | [`hand_over`] | what the GitSyncs of a namespace know of each other |
//! | [`view`] | the peers of one GitSync at one moment |
//! | [`freshness`] | after which point a poll of a peer counts |
//! | [`consult`] | asking peers to poll, before a delete and before a conflict is reported |
//! | [`offers`] | what a GitSync offers to peers while its newest commit waits |
//! | [`dependencies`] | `dependsOn` |

pub mod consult;
pub mod dependencies;
pub mod freshness;
pub mod hand_over;
pub mod offers;
pub mod view;
