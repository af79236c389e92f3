use serde_json::json;

use super::*;
use crate::test_rng::TestRng;

fn told(kind: Kind, old: &Value, new: &Value) -> Vec<String> {
    changes(kind, old, new).iter().map(ToString::to_string).collect()
}

/// Numbers, one in each line.
fn lines(range: std::ops::Range<usize>) -> String {
    let numbers: Vec<_> = range.map(|number| number.to_string()).collect();
    numbers.join("\n") + "\n"
}

#[test]
fn an_agent_is_told_in_its_own_words() {
    let old = json!({
        "modelAPI": {"name": "local"}, "model": "llama3", "replicas": 1, "image": "agent:1",
        "config": {"instructions": lines(0..10)},
        "mcpServers": [{"name": "clock"}, {"name": "search"}],
        "agentNetwork": {"expose": true, "access": ["a"]},
        "waitForDependencies": true,
    });
    let new = json!({
        "modelAPI": {"name": "shared"}, "model": "qwen3", "replicas": 3, "image": "agent:2",
        "config": {"instructions": lines(5..19)},
        "mcpServers": [{"name": "clock"}, {"name": "files"}, {"name": "mail"}],
        "agentNetwork": {"expose": true, "access": ["a", "b"]},
        "env": [{"name": "LOG_LEVEL", "value": "debug"}],
        "waitForDependencies": false,
        "healthCheck": {"path": "/up"},
    });
    assert_eq!(
        told(Kind::Agent, &old, &new),
        [
            "peers +b",
            "prompt: 14 lines changed (+9 −5)",
            "env +LOG_LEVEL",
            "healthCheck.path set to /up",
            "image agent:1 → agent:2",
            "tools +2 −1 (added: files, mail; removed: search)",
            "model llama3 → qwen3",
            "modelAPI local → shared",
            "replicas 1 → 3",
            "waitForDependencies true → false",
        ]
    );
}

#[test]
fn each_kind_of_change_has_its_sentence() {
    let env = |items: Value| json!({"env": items});
    let from = |secret: &str, key: &str| json!({"proxy": {"apiKeyFrom": {"secretKeyRef": {"name": secret, "key": key}}}});
    let long = "x".repeat(61);
    for (kind, old, new, expected) in [
        (Kind::Agent, json!({}), json!({}), &[][..]),
        (Kind::Agent, json!({"replicas": 2}), json!({}), &["replicas removed (was 2)"]),
        (Kind::Agent, json!({}), json!({"resources": {}}), &["resources set to {}"]),
        (
            Kind::Agent,
            json!({}),
            json!({"resources": {"limits": {"cpu": "1", "memory": 5}}}),
            &["resources.limits.cpu set to 1", "resources.limits.memory set to 5"],
        ),
        (
            Kind::Agent,
            json!({"config": {"instructions": "a\nb\n"}}),
            json!({"config": {}}),
            &["prompt removed (2 lines)"],
        ),
        (
            Kind::Agent,
            json!({"description": long}),
            json!({"description": "y"}),
            &["description: 2 lines changed (+1 −1)"],
        ),
        (
            Kind::Agent,
            json!({}),
            json!({"config": {"instructions": "a\n"}}),
            &["prompt set (1 line)"],
        ),
        (
            Kind::Agent,
            env(json!([{"name": "A", "value": "1"}, {"name": "B", "value": "1"}])),
            env(json!([{"name": "A", "value": "2"}, {"name": "B", "value": "1"}])),
            &["env ~A"],
        ),
        (
            Kind::Agent,
            env(json!([{"name": "A"}, {"name": "B"}])),
            env(json!([{"name": "B"}, {"name": "A"}])),
            &["env in another order"],
        ),
        (
            Kind::Agent,
            json!({"mcpServers": [{"name": "a", "tools": ["x"]}]}),
            json!({"mcpServers": [{"name": "a", "tools": ["x", "y"]}]}),
            &["mcpServers[a].tools +y"],
        ),
        (
            Kind::Agent,
            json!({}),
            json!({"providerSecretRef": {"name": "openai", "key": "key"}}),
            &["providerSecretRef set to Secret openai[key]", "new Secret reference openai"],
        ),
        (
            Kind::ModelAPI,
            from("openai", "key"),
            from("openai", "other"),
            &["proxy.apiKeyFrom.secretKeyRef Secret openai[key] → Secret openai[other]"],
        ),
        (
            Kind::ModelAPI,
            from("openai", "key"),
            from("openai-key", "key"),
            &[
                "proxy.apiKeyFrom.secretKeyRef Secret openai[key] → Secret openai-key[key]",
                "new Secret reference openai-key",
                "no more Secret reference openai",
            ],
        ),
        (
            Kind::Agent,
            env(json!([{"name": "K", "value": "x"}])),
            env(json!([{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}])),
            &["env ~K", "new Secret reference s"],
        ),
        (
            Kind::ModelAPI,
            json!({"proxy": {"models": ["a"]}}),
            json!({"proxy": {"models": (0..12).map(|n| format!("m{n}")).collect::<Vec<_>>()}}),
            &[
                "models +12 −1 (added: m0, m1, m2, m3, m4, m5, m6, m7, m8, m9 and 2 more; removed: a)",
            ],
        ),
        (
            Kind::MCPServer,
            json!({"package": {"name": "a", "version": "1"}}),
            json!({"package": {"name": "a", "version": "2"}}),
            &["version 1 → 2"],
        ),
        (
            Kind::MCPServer,
            json!({"toolsString": "def a():\n  pass\n"}),
            json!({"toolsString": "def a():\n  return\n"}),
            &["tools code: 2 lines changed (+1 −1)"],
        ),
        (Kind::Agent, json!({"a": [1, 2]}), json!({"a": [1]}), &["a[1] removed (was 2)"]),
        (Kind::Agent, json!({"a": [1]}), json!({"a": {"b": 1}}), &["a […] → {…}"]),
        (Kind::Agent, json!({"a": null}), json!({}), &["a removed (was null)"]),
        (Kind::Agent, json!({"a": "\u{1b}[31mred"}), json!({"a": ""}), &["a  [31mred → \"\""]),
    ] {
        let expected: Vec<String> = expected.iter().map(|line| (*line).to_owned()).collect();
        assert_eq!(told(kind, &old, &new), expected, "{old} {new}");
    }
}

#[test]
fn what_may_be_secret_is_never_shown() {
    const CANARY: &str = "hunter2canary";
    let secret = |value: Value| {
        [
            json!({"env": [{"name": "HARMLESS", "value": value}]}),
            json!({"config": {"env": [{"name": "A", "value": value}, {"name": "A", "value": value}]}}),
            json!({"buildArgs": {"HARMLESS": value}}),
            json!({"pipeline": {"parameters": [{"name": "harmless", "value": value}]}}),
            json!({"pipeline": {"steps": [{"name": "s", "parameters": [{"name": "a", "values": [value]}]}]}}),
            json!({"env": {"x": [value]}}),
            json!({"apiKey": value, "x": {"GITHUB_TOKEN": {"deep": [value]}}}),
            json!({"db_password": value, "CLIENT_SECRET": [value], "passphrase": value}),
            json!({"hosts": [format!("https://user:{}@h/p?token={0}", value.as_str().unwrap_or_default())]}),
            json!({"url": format!("https://user:{}@h/p?token={0}", value.as_str().unwrap_or_default())}),
        ]
    };
    let long = format!("{CANARY}\n").repeat(3);
    for before in [json!("x"), json!(CANARY), json!(long)] {
        for after in [json!(CANARY), json!(format!("{CANARY}2")), json!(long)] {
            for (old, new) in secret(before.clone()).into_iter().zip(secret(after.clone())) {
                for (old, new) in [(&old, &new), (&json!({}), &new), (&old, &json!({}))] {
                    let changes = changes(Kind::Agent, old, new);
                    assert_eq!(changes.is_empty(), old == new, "{old} {new}");
                    let text: String = changes.iter().map(ToString::to_string).collect();
                    let json = serde_json::to_string(&changes).expect("JSON");
                    assert!(!text.contains(CANARY) && !json.contains(CANARY), "{text}\n{json}");
                }
            }
        }
    }
    // The name of a Secret may be shown. Not every object with a `key` is a reference.
    assert!(!may_be_secret("secretKeyRef") && !may_be_secret("apiKeyFrom"));
    assert!(!may_be_secret("maxTokens") && may_be_secret("apiKey") && may_be_secret("token"));
}

#[test]
fn labels_and_annotations_are_told_by_name() {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    let change = metadata_change("labels", &map(&[("a", "1"), ("b", "1")]), &map(&[("a", "2")]));
    assert_eq!(change.expect("a change").to_string(), "labels −1 ~1 (removed: b; changed: a)");
    assert_eq!(metadata_change("labels", &map(&[("a", "1")]), &map(&[("a", "1")])), None);
}

#[test]
fn a_text_of_any_shape_is_counted_soon() {
    // Two texts of the largest size with nothing in common: a simple algorithm would take quadratic time.
    let change = &changes(
        Kind::Agent,
        &json!({"a": lines(0..40_000)}),
        &json!({"a": lines(50_000..90_000)}),
    )[0];
    let What::Text { added, removed, .. } = change.what else { panic!("{change:?}") };
    assert_eq!((added, removed), (40_000, 40_000));
}

/// Random values.
struct Random(TestRng);

impl Random {
    fn value(&mut self, depth: usize) -> Value {
        const NAMES: &[&str] = &[
            "env",
            "name",
            "value",
            "apiKey",
            "config",
            "instructions",
            "secretKeyRef",
            "key",
            "optional",
            "x",
        ];
        match self.0.roll(if depth == 0 { 7 } else { 10 }) {
            0 => Value::Null,
            1 => json!(self.0.roll(2) == 0),
            2 => json!(self.0.roll(3)),
            3 => {
                json!(
                    ["", "a", "b", "a\nb\n", "a\nb", "https://h?a", "https://h?b"][self.0.roll(7)]
                )
            }
            4 => json!(NAMES[self.0.roll(NAMES.len())]),
            5 => json!([]),
            6 => json!({}),
            7 => (0..self.0.roll(4)).map(|_| self.value(depth - 1)).collect(),
            8 => (0..self.0.roll(4))
                .map(|_| json!({"name": NAMES[self.0.roll(4)], "value": self.value(0)}))
                .collect(),
            _ => {
                let pairs = (0..self.0.roll(5))
                    .map(|_| (NAMES[self.0.roll(NAMES.len())].to_owned(), self.value(depth - 1)));
                Value::Object(pairs.collect())
            }
        }
    }
}

#[test]
fn specs_are_equal_exactly_when_nothing_is_told() {
    let mut random = Random(TestRng(0x9e37_79b9_7f4a_7c15));
    let mut equal = 0;
    for round in 0..40_000 {
        let old = random.value(3);
        let new = if round % 4 == 0 { old.clone() } else { random.value(3) };
        let kind = Kind::ALL[random.0.roll(4)];
        let changes = changes(kind, &old, &new);
        assert_eq!(changes.is_empty(), old == new, "{old}\n{new}\n{changes:?}");
        equal += usize::from(old == new);
        assert!(changes.iter().all(|change| !change.to_string().trim().is_empty()));
    }
    assert!((10_000..30_000).contains(&equal), "{equal}");
}
