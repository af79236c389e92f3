use serde_json::json;

use super::*;

#[test]
fn b3_broken_templates_are_refused() {
    for (text, message) in [
        (json!({"name": "t"}), "missing field `steps`"),
        (json!({"name": "t", "steps": []}), "no step is enabled"),
        (
            json!({"name": "t", "steps": [{"name": "a", "configMap": "b", "enabled": false}]}),
            "no step is enabled",
        ),
        (
            json!({"name": "t", "steps": [{"name": "a", "configmap": "b"}]}),
            "unknown field `configmap`",
        ),
        (
            json!({"name": "t", "steps": [{"name": "a", "configMap": "b"}, {"name": "a", "configMap": "c"}]}),
            "two steps are called a",
        ),
        (json!({"name": "t", "steps": [{"name": "A b", "configMap": "b"}]}), "no DNS label"),
        (
            json!({"name": "t", "steps": [{"name": "a", "configMap": "../secrets/b"}]}),
            "is no name of a ConfigMap",
        ),
        (
            json!({"name": "t", "steps": [{"name": "a", "configMap": "b"}], "globalParameters": [{"name": "x", "value": "1"}, {"name": "x", "value": "2"}]}),
            "parameter x is set twice",
        ),
        (
            json!({"name": "t", "steps": [{"name": "a", "configMap": "b", "when": [{"input": "x", "operator": "is", "values": []}]}]}),
            "unknown variant `is`",
        ),
    ] {
        let error = parse("cm", Some(&text.to_string())).expect_err("refused");
        assert_eq!(error.reason(), "TemplateInvalid");
        assert!(error.to_string().contains(message), "{error}");
    }
    assert_eq!(
        parse("cm", None).expect_err("refused").to_string(),
        "ConfigMap cm: no key template.json"
    );
}
