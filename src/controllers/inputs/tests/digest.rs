use super::*;
use crate::cluster::hidden::Hidden;

fn key() -> MacKey {
    MacKey::new(&[7; KEY_BYTES])
}

fn secret() -> Reference {
    Reference { source: Source::Secret, name: "keys".into() }
}

fn keys(keys: &[&str]) -> Use {
    let keys = keys.iter().map(|&key| key.to_owned()).collect();
    Use { keys, all: false, required: true }
}

fn object(data: &[(&str, &str)]) -> Digests {
    key().digests(data.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes())))
}

#[test]
fn a5_only_what_is_read_counts() {
    let of =
        |used: &Use, data: &[(&str, &str)]| key().component("team", &secret(), used, &object(data));
    let one = keys(&["a"]);
    let before = of(&one, &[("a", "1"), ("b", "1")]);
    assert_eq!(before.len(), 32);
    assert_eq!(of(&one, &[("a", "1"), ("b", "2"), ("c", "3")]), before);
    assert_ne!(of(&one, &[("a", "2"), ("b", "1")]), before);
    assert_ne!(of(&one, &[("b", "1")]), before, "a key that is gone");
    assert_ne!(of(&one, &[("a", "")]), of(&one, &[]), "empty is not missing");
    let all = Use { all: true, ..Use::default() };
    assert_ne!(of(&all, &[("a", "1"), ("b", "1")]), of(&all, &[("a", "1"), ("b", "2")]));
    assert_ne!(of(&all, &[("ab", "1")]), of(&all, &[("a", "1"), ("b", "1")]));
}

#[test]
fn a5_the_digest_needs_the_key_and_tells_nothing_of_another_place() {
    let (used, data) = (keys(&["a"]), object(&[("a", "1")]));
    let here = key().component("team", &secret(), &used, &data);
    assert_ne!(key().component("other", &secret(), &used, &data), here);
    let other = MacKey::new(&[8; KEY_BYTES]);
    let theirs = other.digests([("a".to_owned(), &b"1"[..])]);
    assert_ne!(other.component("team", &secret(), &used, &theirs), here);
    assert_eq!(format!("{:?} {data:?}", key()), "MacKey(…) {\"a\"}");
    assert!(data == object(&[("a", "1")]) && data != object(&[("a", "2")]));
}

#[test]
fn a5_the_annotation_is_read_as_it_is_written() {
    let mut all = Components::default();
    assert_eq!(all.text(), None);
    all.0.insert(secret(), "0123456789abcdef0123456789abcdef".into());
    let map = Reference { source: Source::ConfigMap, name: "a.b".into() };
    all.0.insert(map, "f".repeat(32));
    let text = all.text().expect("text");
    let expected =
        format!("ConfigMap/a.b={},Secret/keys=0123456789abcdef0123456789abcdef", "f".repeat(32));
    assert_eq!(text, expected);
    assert_eq!(Components::parse(&text), all);
    assert_eq!(Components::parse("Pod/a=1,Secret/x=short,,by hand"), Components::default());
}

#[test]
fn m5_derived_keys_and_digests_differ_by_purpose_part_and_operator() {
    let (key, other) = (MacKey::new(&[7; 32]), MacKey::new(&[8; 32]));
    let all = [
        key.derive(&["sign", "team", "m"]),
        key.derive(&["sign", "tea", "mm"]),
        key.derive(&["sign", "team", "m", ""]),
        key.derive(&["master", "team", "m"]),
        other.derive(&["sign", "team", "m"]),
    ];
    let different: std::collections::BTreeSet<_> = all.iter().map(Hidden::get).collect();
    assert_eq!(different.len(), all.len());
    assert!(different.iter().all(|key| key.len() == 64));
    assert!(key.derive(&["sign", "team", "m"]) == all[0], "always the same");
    assert!(!format!("{:?}", all[0]).contains(all[0].get().as_str()), "never printed");
    let sealed = key.seal(["sign", "team", "m"].map(str::as_bytes));
    assert_eq!(sealed.len(), 32);
    assert!(!all[0].get().starts_with(&sealed), "what is shown tells nothing of a key");
}
