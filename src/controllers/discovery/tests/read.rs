//! Where cards are looked for.

use serde_json::json;

use crate::controllers::discovery::server::{self, Server, asker};

use super::*;

async fn card_of(server: &Server) -> CardRead {
    card(&asker(), &Destination::External(&server.url), None).await
}

#[tokio::test]
async fn a9_the_newer_place_of_a_card_is_asked_first_and_then_the_older_one() {
    let at = |place: &'static str| {
        Server::new(move |seen| {
            let card = json!({"name": "a", "url": "http://a.team:8000"});
            let status = if seen.path == place { 200 } else { 404 };
            server::json(status, &card)
        })
    };
    let new = at("/.well-known/agent-card.json").await;
    assert!(matches!(card_of(&new).await, CardRead::Card(_)));
    assert_eq!(new.seen().len(), 1);
    let old = at("/.well-known/agent.json").await;
    assert!(matches!(card_of(&old).await, CardRead::Card(_)));
    let none = at("/card").await;
    assert_eq!(card_of(&none).await, CardRead::NoCard);
    assert_eq!(none.seen().len(), 2);
}

#[tokio::test]
async fn a9_what_is_no_card_is_a_failure_that_is_tried_again() {
    for (status, text) in [(200, "<html>"), (500, "{}"), (302, "")] {
        let server = Server::new(move |_| (status, Vec::new(), text.into())).await;
        let read = card_of(&server).await;
        assert!(matches!(read, CardRead::Failed(_)), "{status}");
        assert!(Found::Card(read).has_failed());
    }
    assert!(!Found::Card(CardRead::NoCard).has_failed());
    let wanted = ConfigVersion { hash: "0a".into(), commit: None };
    let behind = CardRead::Behind(Box::default(), wanted);
    assert!(Found::Card(behind).has_failed(), "the new configuration may be there soon");
    assert!(!Found::Tools(Err(Failure::Unauthorized(403))).has_failed());
    let late = Failure::Unreachable("late".into());
    assert!(Found::failed(&Topic::Tools, late).has_failed());
}
