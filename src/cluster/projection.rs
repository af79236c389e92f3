//! (pure) Compares a live object with the wanted one.
//!
//! The API server adds defaults and rewrites quantities. So only fields that the wanted object sets are compared.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use serde_json::Value;

/// Fields that the API server leaves out when they are `false`. For other fields, absence may mean something else: an absent
/// `automountServiceAccountToken` means `true`.
const ABSENT_WHEN_FALSE: [&str; 1] = ["paused"];

/// Whether `live` has every field of `desired` with an equal value. Lists must have the same length and order. `null`, an empty
/// object and an empty list equal an absent field. In a few fields `false` does, too.
#[must_use]
pub fn covers(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            desired.iter().all(|(key, want)| match live.get(key) {
                Some(have) => covers(have, want),
                None => {
                    is_nothing(want)
                        || (*want == Value::Bool(false)
                            && ABSENT_WHEN_FALSE.contains(&key.as_str()))
                }
            })
        }
        (Value::Array(live), Value::Array(desired)) => {
            live.len() == desired.len()
                && live.iter().zip(desired).all(|(have, want)| covers(have, want))
        }
        (have, want) if have == want => true,
        (have, want) if is_nothing(have) && is_nothing(want) => true,
        (have, want) => match (quantity(have), quantity(want)) {
            (Some(have), Some(want)) => {
                (have - want).abs() <= f64::EPSILON * have.abs().max(want.abs())
            }
            _ => false,
        },
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// A Kubernetes quantity (`500m`, `1Gi`, `1e3`, 2) as a number.
fn quantity(value: &Value) -> Option<f64> {
    let text = match value {
        Value::Number(number) => return number.as_f64(),
        Value::String(text) => text,
        _ => return None,
    };
    const UNITS: [(&str, f64); 15] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
    ];
    // "inf" and "nan" would parse as numbers.
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    if let Ok(number) = text.parse::<f64>() {
        return number.is_finite().then_some(number);
    }
    UNITS
        .iter()
        .find_map(|(unit, factor)| text.strip_suffix(unit)?.parse::<f64>().ok().map(|n| n * factor))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn u10_defaults_and_canonical_forms_are_no_difference() {
        let desired = json!({"resources": {"limits": {"cpu": "0.5", "memory": "1024Mi", "pods": 2}}, "env": [], "ports": [{"port": 80}]});
        let live = json!({"resources": {"limits": {"cpu": "500m", "memory": "1Gi", "pods": "2"}}, "ports": [{"port": 80, "protocol": "TCP"}], "dnsPolicy": "ClusterFirst"});
        assert!(covers(&live, &desired));
    }

    #[test]
    fn a_rollout_that_is_not_paused_may_say_so_or_not() {
        let desired = json!({"spec": {"paused": false}});
        for live in [json!({"spec": {}}), desired.clone()] {
            assert!(covers(&live, &desired), "{live}");
        }
        assert!(!covers(&json!({"spec": {"paused": true}}), &desired));
        let token = "automountServiceAccountToken";
        assert!(!covers(&json!({}), &json!({token: false})), "absent is true");
    }

    #[test]
    fn real_differences_are_seen() {
        for (live, desired) in [
            (json!({"a": "1"}), json!({"a": "2"})),
            (json!({}), json!({"a": ""})),
            (json!({"a": [1, 2]}), json!({"a": [1]})),
            (json!({"a": [2, 1]}), json!({"a": [1, 2]})),
            (json!({"a": true}), json!({"a": false})),
            (json!({"a": "500m"}), json!({"a": "501m"})),
            (json!({"a": "x"}), json!({"a": "y"})),
            (json!({"a": "inf"}), json!({"a": "nan"})),
        ] {
            assert!(!covers(&live, &desired), "{live} covers {desired}");
        }
    }
}
