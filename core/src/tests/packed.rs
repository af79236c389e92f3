use serde_json::json;

use super::*;
use crate::api::keys;

#[test]
fn a_packed_value_comes_out_as_it_went_in() {
    let family = Family::new();
    let value = json!({"a": [1, 2.5, null, "text"], "b": {"c": true}});
    assert_eq!(family.pack(&value).json(), value, "the sample itself");
    assert_eq!(family.pack(&value).json(), value, "and what is like it");
    let long = json!("0123456789".repeat(20_000));
    assert_eq!(family.pack(&long).json(), long);
    let other = Family::new();
    assert_eq!(other.pack(&long).json(), long, "longer than a sample");
    assert_eq!(other.pack(&"x").get::<u8>(), None);
}

#[test]
fn what_looks_alike_takes_little_and_samples_follow() {
    let family = Family::new();
    let words = |seed: usize| -> String {
        let word = |n: usize| format!("{:x}", (n + seed).wrapping_mul(0x9e37_79b9));
        (0..200).map(word).collect::<Vec<_>>().join(" ")
    };
    let (old, new) = (words(1), words(1_000_000));
    let value = |text: &str, n: usize| json!({"name": n, "text": text});
    let first = family.pack(&value(&old, 0));
    assert!(family.pack(&value(&old, 1)).bytes.len() < old.len() / 20);
    let unlike = family.pack(&value(&new, 0));
    assert!(unlike.bytes.len() > new.len() / 4, "{unlike:?}");
    for n in 0..MIN_USES_OF_SAMPLE as usize {
        assert_eq!(family.pack(&value(&new, n)).json(), value(&new, n));
    }
    assert!(family.pack(&value(&new, 1)).bytes.len() < new.len() / 20, "a sample of its own");
    assert_eq!(first.json(), value(&old, 0), "an earlier sample lives as long as it is used");
    // Equal values are equal, however they are packed.
    assert_eq!(family.pack(&value(&old, 0)), first);
    assert_ne!(family.pack(&value(&old, 1)), first);
}

#[test]
fn texts_come_out_as_they_went_in() {
    let long = "ü".repeat(400);
    let all = ["", "a", &long[..254], &long[..256], &long, ""];
    assert_eq!(Texts::of(all).iter().collect::<Vec<_>>(), all);
    assert_eq!((Texts::of(all).get(1), Texts::of(all).get(6)), (Some("a"), None));
    assert_eq!(Texts::of([]).iter().count(), 0);
}

#[test]
fn pairs_are_found_and_compared() {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    let packed = |pairs: &[(&str, &str)]| Pairs::of(Some(&map(pairs)));
    let pairs = Pairs::of(Some(&map(&[(keys::OWNER, "me"), ("team", "a"), ("zone", "")])));
    assert_eq!(pairs.get(keys::OWNER), Some("me"));
    assert_eq!((pairs.get("zone"), pairs.get("z")), (Some(""), None));
    assert_eq!(pairs.get("me"), None, "a value is no name");
    assert!(pairs.cover(&packed(&[("team", "a")])) && pairs.cover(&Pairs::default()));
    assert!(!pairs.cover(&packed(&[("team", "b")])) && !pairs.cover(&packed(&[("other", "")])));
    assert_eq!(Pairs::of(None), Pairs::default());
    assert!(Pairs::default().is_empty() && !pairs.is_empty());
    let all = pairs.to_map();
    assert_eq!((all.len(), Pairs::of(Some(&all))), (3, pairs.clone()));
    assert_eq!(json!(pairs), json!(all), "in the same order");
}
