#![allow(clippy::disallowed_methods)] // a point to count from

use super::*;
use crate::sync::commit::loaded::tests::commit;
use crate::sync::reasons::SourceReason;

#[test]
fn g18_a_look_that_panics_is_a_failure_and_what_was_read_before_stays() {
    let loaded = Some(Arc::new(commit(None, &[("a", "a.yaml")], false)));
    let mut remote = Remote { loaded, ..Remote::default() };
    let (trigger, request) = (Trigger::Request, Some("now".to_owned()));
    let (began, at) = (Instant::now(), Seq::next());
    let slot = remote.poll(Question { trigger, generation: 7, request, began, at });
    let news = remote.has_news();
    assert!(!news() && remote.take_answer().is_none(), "it is under way");
    *slot.lock() = Some(Err(SourceError::Panicked));
    assert!(news(), "a plan that is being carried out stops");
    let answer = remote.take_answer().expect("an answer");
    let failure = answer.failure.expect("a failure");
    assert_eq!((failure.reason, failure.terminal), (SourceReason::InternalError, false));
    assert!(failure.message.contains("bug of Convoke; hint: revert"), "{}", failure.message);
    assert_eq!((answer.question.generation, answer.changed), (7, false));
    assert_eq!(answer.question.request.as_deref(), Some("now"));
    assert!(answer.loaded.is_some(), "what was read before");
    assert!(
        remote.polling().is_none() && remote.take_answer().is_none(),
        "the next look may begin"
    );
}
