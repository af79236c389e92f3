use super::*;

#[test]
fn a_404_of_an_object_is_not_that_of_a_kind() {
    let error = |status: serde_json::Value| {
        let status: Status = serde_json::from_value(status).expect("a status");
        CallError::Refused(Box::new(status))
    };
    let object = error(serde_json::json!({
        "status": "Failure", "code": 404, "reason": "NotFound",
        "message": "agents.convoke.dev \"a\" not found",
        "details": {"name": "a", "group": "convoke.dev", "kind": "agents"},
    }));
    assert!(object.is_not_found() && object.is_gone());
    // While a CRD is not served, the server answers 404 for every object of the kind.
    let kind = error(serde_json::json!({
        "status": "Failure", "code": 404, "reason": "NotFound",
        "message": "the server could not find the requested resource", "details": {},
    }));
    assert!(kind.is_not_found() && !kind.is_gone());
}

#[test]
fn only_a_403_with_the_words_of_the_authorizer_is_a_missing_right_and_only_a_410_is_expired() {
    let said = |code: u16, message: &str| {
        let status = serde_json::json!({"code": code, "message": message, "status": "Failure", "reason": "r"});
        let status: Status = serde_json::from_value(status).expect("a status");
        CallError::Refused(Box::new(status))
    };
    let error = |code: u16| said(code, "m");
    assert!(error(403).is_forbidden() && !error(404).is_forbidden());
    assert!(!CallError::Deadline(Duration::ZERO).is_forbidden());
    let words = r#"agents is forbidden: User "u" cannot patch resource "agents" in API group "g""#;
    assert!(said(403, words).is_missing_right() && !said(404, words).is_missing_right());
    assert!(!error(403).is_missing_right(), "a policy or a quota");
    assert!(error(410).is_expired() && !error(404).is_expired());
    assert!(error(401).is_unauthorized() && !error(403).is_unauthorized());
}

#[test]
fn a8_a_refusal_has_words_whatever_the_server_leaves_out() {
    let words = |status: serde_json::Value| {
        let status: Status = serde_json::from_value(status).expect("a status");
        let error = CallError::Refused(Box::new(status));
        assert_eq!(error.words(), error.to_string());
        error.words()
    };
    let whole = serde_json::json!({"status": "Failure", "code": 403, "reason": "Forbidden", "message": "m"});
    assert_eq!(words(whole), "m");
    let silent = serde_json::json!({"status": "Failure", "code": 401, "reason": "Unauthorized"});
    assert_eq!(words(silent), "Unauthorized");
    let code = "the API server answered with 502";
    assert_eq!(words(serde_json::json!({"code": 502})), code);
    // An empty answer of a proxy.
    let none = serde_json::json!({"status": "Failure", "code": 502, "reason": "Failed to parse error data"});
    assert_eq!(words(none), code);
}
