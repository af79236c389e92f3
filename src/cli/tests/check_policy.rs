use super::*;
use serde_json::json;

fn report(value: &Value) -> Vec<u8> {
    let expression =
        json!({"value": value, "text": "data.convoke.deny", "location": {"row": 1, "col": 1}});
    json!({"result": [{"expressions": [expression]}]}).to_string().into_bytes()
}

#[test]
fn b3_each_message_of_the_rules_is_a_broken_rule() {
    assert_eq!(judged(&report(&json!([]))), Ok(Vec::new()));
    let messages = json!(["the image exposes\nport 80", "no\u{1b}[2J way"]);
    assert_eq!(
        judged(&report(&messages)),
        Ok(vec!["no [2J way".to_owned(), "the image exposes port 80".to_owned()])
    );
}

#[test]
fn b3_rules_that_cannot_be_used_are_no_rules_that_are_kept() {
    let errors = json!({"errors": [
        {"message": "var x is unsafe", "code": "rego_unsafe_var_error", "location": {"file": "policy.rego", "row": 7, "col": 1}},
        {"message": "eval_builtin_error: to_number: invalid syntax"},
        {},
    ]});
    let many = json!({"errors": vec![json!({"message": "x"}); 100]});
    for (bytes, said) in [
        (
            errors.to_string().into_bytes(),
            "line 7: var x is unsafe; eval_builtin_error: to_number: invalid syntax; an error",
        ),
        (many.to_string().into_bytes(), "x; x; x; x; x"),
        (b"{}".to_vec(), "no rule `deny` in the package `convoke`"),
        (json!({"result": []}).to_string().into_bytes(), "no rule `deny`"),
        (b"".to_vec(), "not what opa prints"),
        (b"{\"result\": 7}".to_vec(), "not what opa prints"),
        (report(&json!(true)), "`deny` is no set"),
        (report(&json!({"a": "b"})), "`deny` is no set"),
        (report(&json!(["a", 7])), "no text"),
        (report(&json!([" "])), "no text"),
    ] {
        let error = judged(&bytes).expect_err(said);
        assert!(error.contains(said), "{error}");
    }
}
