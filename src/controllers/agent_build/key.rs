//! (pure) The build key (B1): a hash of everything that goes into an image, and of nothing else.
//!
//! In it: the trees of the source folder and of `trigger.paths`, the recipe, the image's name, the resolved
//! template. Not in it: commit, tag, timeout, repository address. So a commit that touches other files builds
//! nothing, and a revert finds what was built before.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use sha2::{Digest, Sha256};

use crate::api::agent_build::{AgentBuildSpec, BuildOutput, BuildSource, BuildTrigger};
use crate::controllers::build_sources::SourceAt;

/// Changes when the encoding changes: keys of different encodings never meet.
const VERSION: &str = "convoke build key 1";

/// Names one build: sha256 in 64 hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BuildKey(String);

impl BuildKey {
    /// A key as a status says it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        valid.then(|| Self(text.to_owned()))
    }

    /// All 64 hex digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 10 hex digits, for names: 40 bits tell the builds of one object apart.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..10).unwrap_or(&self.0)
    }

    /// The first 32 hex digits: fits into a label.
    #[must_use]
    pub fn label(&self) -> &str {
        self.0.get(..32).unwrap_or(&self.0)
    }

    /// The tag by which a registry finds the image of this key.
    #[must_use]
    pub fn tag(&self) -> String {
        format!("cvk-{}", self.0)
    }
}

impl fmt::Display for BuildKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The commit has no such folder.
    #[error("commit {commit} has no folder {subfolder}")]
    SubfolderMissing {
        /// `spec.source.subfolder`.
        subfolder: String,
        /// Commit, shortened.
        commit: String,
    },
}

/// The key of a build. `registry` is the registry host that is really used; `template_hash` covers steps and their
/// parameters as far as they don't come from the spec.
///
/// # Errors
/// When the commit has no such source folder.
pub fn build_key(
    spec: &AgentBuildSpec,
    source: &SourceAt,
    registry: &str,
    template_hash: &str,
) -> Result<BuildKey, KeyError> {
    // Without `..`: whoever adds a field decides here whether it goes into the key.
    let AgentBuildSpec {
        source: from,
        output,
        dockerfile,
        mode: _,
        build_args,
        timeout: _,
        trigger,
    } = spec;
    let BuildSource { git_sync: _, subfolder } = from;
    // A build that failed for want of `insecure` must run again when it is set.
    let BuildOutput { registry: _, image, tag: _, insecure } = output;
    let BuildTrigger { on_commit: _, paths } = trigger;
    let tree = source.subfolder_tree.as_deref().ok_or_else(|| KeyError::SubfolderMissing {
        subfolder: subfolder.clone(),
        commit: source.commit.chars().take(12).collect(),
    })?;
    let mut encoding = Encoding::new();
    encoding.text("subfolder", subfolder);
    encoding.text("tree", tree);
    let mut paths: Vec<_> = paths.iter().collect();
    paths.sort_unstable();
    paths.dedup();
    encoding.list("paths", paths.len());
    for path in paths {
        encoding.text("path", path);
        // A path that the commit lacks is no error: it counts as soon as it is there.
        encoding.option("object", source.paths.get(path).and_then(Option::as_deref));
    }
    encoding.text("dockerfile", dockerfile);
    encoding.list("build args", build_args.len());
    for (name, value) in build_args {
        encoding.text("name", name);
        encoding.text("value", value);
    }
    encoding.text("registry", registry);
    encoding.text("image", image);
    encoding.text("insecure", if *insecure { "true" } else { "false" });
    encoding.text("template", template_hash);
    Ok(BuildKey(encoding.finish()))
}

/// Hash of labelled values: every text carries its length and every list its count, so that no two different
/// splits of the same characters are equal.
pub(super) struct Encoding(Sha256);

impl Encoding {
    pub(super) fn new() -> Self {
        let mut encoding = Self(Sha256::new());
        encoding.bytes(VERSION.as_bytes());
        encoding
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    pub(super) fn text(&mut self, label: &str, value: &str) {
        self.bytes(label.as_bytes());
        self.bytes(value.as_bytes());
    }

    fn option(&mut self, label: &str, value: Option<&str>) {
        self.list(label, usize::from(value.is_some()));
        if let Some(value) = value {
            self.bytes(value.as_bytes());
        }
    }

    pub(super) fn list(&mut self, label: &str, count: usize) {
        self.bytes(label.as_bytes());
        self.0.update((count as u64).to_be_bytes());
    }

    pub(super) fn finish(self) -> String {
        crate::sync::desired::hex(&self.0.finalize())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::{Value, json};

    use super::*;

    fn spec(patch: Value) -> AgentBuildSpec {
        let mut spec = json!({
            "source": {"gitSync": {}, "subfolder": "images/reviewer"},
            "output": {"image": "team/reviewer"},
            "buildArgs": {"A": "1", "B": "2"},
            "trigger": {"paths": ["shared", "lock.txt"]},
        });
        merge(&mut spec, patch);
        serde_json::from_value(spec).expect("a spec")
    }

    fn merge(into: &mut Value, patch: Value) {
        match (into, patch) {
            (Value::Object(into), Value::Object(patch)) => {
                for (key, value) in patch {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, patch) => *into = patch,
        }
    }

    fn source() -> SourceAt {
        SourceAt {
            sync: "team".into(),
            url: "https://git.example.com/team.git".into(),
            commit: "a".repeat(40),
            subfolder_tree: Some("1".repeat(40)),
            paths: BTreeMap::from([
                ("shared".into(), Some("2".repeat(40))),
                ("lock.txt".into(), None),
            ]),
            applied: None,
        }
    }

    fn key(patch: Value) -> BuildKey {
        build_key(&spec(patch), &source(), "registry:5000", "t").expect("a key")
    }

    #[test]
    fn b1_what_does_not_go_into_the_image_keeps_the_key() {
        let base = key(json!({}));
        for patch in [
            json!({"output": {"tag": "{commit}"}}),
            json!({"timeout": "1h"}),
            json!({"trigger": {"onCommit": false}}),
            json!({"trigger": {"paths": ["lock.txt", "shared", "shared"]}}),
            // The registry that counts is the resolved one.
            json!({"output": {"registry": "registry:5000"}}),
        ] {
            assert_eq!(key(patch.clone()), base, "{patch}");
        }
        let mut elsewhere = source();
        elsewhere.commit = "b".repeat(40);
        elsewhere.url = "https://mirror.example.com/team.git".into();
        elsewhere.sync = "other".into();
        elsewhere.paths.insert("unrelated".into(), Some("9".repeat(40)));
        let moved = build_key(&spec(json!({})), &elsewhere, "registry:5000", "t").expect("a key");
        assert_eq!(moved, base);
    }

    #[test]
    fn b1_what_goes_into_the_image_changes_the_key() {
        let mut keys = BTreeSet::new();
        let mut add = |key: BuildKey, what: &str| {
            assert!(keys.insert(key.to_string()), "{what} has no own key");
        };
        add(key(json!({})), "the base");
        for patch in [
            json!({"source": {"subfolder": "images"}}),
            json!({"dockerfile": "Containerfile"}),
            json!({"buildArgs": {"A": "2"}}),
            json!({"buildArgs": {"C": ""}}),
            json!({"output": {"image": "team/writer"}}),
            json!({"output": {"insecure": true}}),
            json!({"trigger": {"paths": ["shared"]}}),
            json!({"trigger": {"paths": []}}),
        ] {
            add(key(patch.clone()), &patch.to_string());
        }
        let base = spec(json!({}));
        let with = |change: &dyn Fn(&mut SourceAt)| {
            let mut source = source();
            change(&mut source);
            build_key(&base, &source, "registry:5000", "t").expect("a key")
        };
        add(with(&|s| s.subfolder_tree = Some("3".repeat(40))), "another tree");
        add(
            with(&|s| drop(s.paths.insert("shared".into(), Some("4".repeat(40))))),
            "another tree of a path",
        );
        add(with(&|s| drop(s.paths.insert("shared".into(), None))), "a path that is gone");
        add(with(&|s| drop(s.paths.insert("lock.txt".into(), Some("5".repeat(40))))), "a new path");
        add(build_key(&base, &source(), "other:5000", "t").expect("a key"), "another registry");
        add(build_key(&base, &source(), "registry:5000", "u").expect("a key"), "another template");
    }

    #[test]
    fn b1_no_two_splits_of_the_same_characters_collide() {
        let args = |pairs: &[(&str, &str)]| {
            let args: BTreeMap<_, _> = pairs.iter().copied().collect();
            let mut spec = spec(json!({}));
            spec.build_args = args.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
            build_key(&spec, &source(), "registry:5000", "t").expect("a key").to_string()
        };
        let splits: &[&[(&str, &str)]] = &[
            &[],
            &[("", "")],
            &[("A", "BC")],
            &[("AB", "C")],
            &[("ABC", "")],
            &[("A", ""), ("B", "C")],
            &[("A", "B"), ("C", "")],
            &[("A", "B=C")],
            &[("A=B", "C")],
            &[("A", "nameBvalueC")],
        ];
        let keys: BTreeSet<_> = splits.iter().map(|pairs| args(pairs)).collect();
        assert_eq!(keys.len(), splits.len());
        let neighbours = [("r", "ot"), ("ro", "t"), ("rot", "")].map(|(registry, template)| {
            build_key(&spec(json!({})), &source(), registry, template).expect("a key").to_string()
        });
        assert_eq!(BTreeSet::from(neighbours).len(), 3);
    }

    #[test]
    fn b5_a_missing_subfolder_has_its_own_reason() {
        let mut source = source();
        source.subfolder_tree = None;
        let error = build_key(&spec(json!({})), &source, "r", "t").expect_err("no key");
        assert_eq!(error.to_string(), "commit aaaaaaaaaaaa has no folder images/reviewer");
    }

    #[test]
    fn b1_the_encoding_is_stable() {
        // A change of this value builds every image of every cluster anew: change VERSION, and say so.
        insta::assert_snapshot!(key(json!({})).as_str(), @"a0e225bdab9135fa2a413e7914b62da222a1e8796d908d59e65bf8217f737a59");
    }
}
