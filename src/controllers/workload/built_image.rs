//! (pure) The image of an AgentBuild that pods run, and the annotation of their Deployment that tells which build made it.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::pod_template::image_of;
use crate::api::keys;
use convoke_core::text::nearest;

/// The image of an object with a `buildRef`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuiltImage {
    /// The image to run. `None`: no pod may be made, and none is changed.
    pub image: Option<String>,
    /// The AgentBuild that made it, if it is known.
    pub build: Option<String>,
    /// The AgentBuild that has no image.
    pub waiting_for: Option<String>,
}

impl BuiltImage {
    /// The image of this build, if it has one (`built`). `live` is the Deployment as it is.
    ///
    /// A build that has lost its image does not stop what runs: its pods may be changed and replaced. But an image that another
    /// build made, or that the spec named, is not run in its place. Only a Deployment without pods (`has_pods` is false) runs
    /// neither.
    #[must_use]
    pub fn of(
        build: &str,
        built: Option<String>,
        live: Option<&Deployment>,
        has_pods: bool,
    ) -> Self {
        if built.is_some() {
            return Self { image: built, build: Some(build.to_owned()), waiting_for: None };
        }
        let maker = live.and_then(build_of);
        let live = live.filter(|_| !has_pods || maker.as_deref() == Some(build));
        Self {
            image: live.and_then(image_of),
            build: live.and(maker),
            waiting_for: Some(build.to_owned()),
        }
    }
}

/// The AgentBuild that made the image of a Deployment, as its annotation says.
fn build_of(deployment: &Deployment) -> Option<String> {
    deployment.metadata.annotations.as_ref()?.get(keys::BUILD).cloned()
}

/// The metadata of a Deployment that runs an image of this build.
#[must_use]
pub fn with_build(mut meta: ObjectMeta, build: Option<&str>) -> ObjectMeta {
    if let Some(build) = build {
        meta.annotations.get_or_insert_default().insert(keys::BUILD.to_owned(), build.to_owned());
    }
    meta
}

/// An AgentBuild that is not there, for people. `names` are those of the AgentBuilds of the namespace.
#[must_use]
pub fn missing(build: &str, names: &[String]) -> String {
    let near = nearest(build, names.iter().map(String::as_str));
    let near = near.map(|near| format!(": did you mean {near}?")).unwrap_or_default();
    format!("there is no AgentBuild {build} in this namespace{near}")
}

/// Why the image of a build is not known, for people: what `missing` says, or that there is none yet.
#[must_use]
pub fn unresolved(build: &str, missing: Option<&str>) -> String {
    let no_image = || format!("AgentBuild {build} has built no image yet");
    missing.map_or_else(no_image, str::to_owned)
}

/// Why nothing is rolled out, for people. `missing` says that the build is not there, and `runs` whether pods of an earlier spec are.
#[must_use]
pub fn waiting(build: &str, missing: Option<&str>, runs: bool) -> String {
    let stay = "the pods of the earlier spec stay";
    match (missing, runs) {
        (Some(missing), true) => format!("Waiting: {missing}; {stay}"),
        (Some(missing), false) => format!("Waiting: {missing}"),
        (None, true) => format!("Waiting for AgentBuild {build}, which has no image; {stay}"),
        (None, false) => format!("Waiting for AgentBuild {build}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live(image: &str, build: Option<&str>) -> Deployment {
        let pod = json!({"containers": [{"name": "c", "image": image}]});
        let live =
            json!({"metadata": {"name": "d"}, "spec": {"selector": {}, "template": {"spec": pod}}});
        let mut live: Deployment = serde_json::from_value(live).expect("Deployment");
        live.metadata = with_build(live.metadata, build);
        live
    }

    #[test]
    fn a10_a_build_that_is_not_there_is_told_with_the_name_that_may_be_meant() {
        let names = ["reviewer".to_owned(), "other".to_owned()];
        let text = missing("reviewr", &names);
        let expected = "there is no AgentBuild reviewr in this namespace: did you mean reviewer?";
        assert_eq!(text, expected);
        assert_eq!(missing("crash", &names), "there is no AgentBuild crash in this namespace");
        assert_eq!(unresolved("reviewr", Some(&text)), text);
        assert_eq!(unresolved("other", None), "AgentBuild other has built no image yet");
        assert_eq!(waiting("reviewr", Some(&text), false), format!("Waiting: {text}"));
        let runs = waiting("reviewr", Some(&text), true);
        assert_eq!(runs, format!("Waiting: {text}; the pods of the earlier spec stay"));
        assert_eq!(waiting("other", None, false), "Waiting for AgentBuild other");
    }

    #[test]
    fn a10_only_the_build_that_made_what_runs_goes_on_without_an_image() {
        let of = |build: &str, built: Option<&str>, live: Option<&Deployment>| {
            BuiltImage::of(build, built.map(str::to_owned), live, true)
        };
        let expect = |image: Option<&str>, build: Option<&str>, waiting_for: Option<&str>| {
            let [image, build, waiting_for] =
                [image, build, waiting_for].map(|text| text.map(str::to_owned));
            BuiltImage { image, build, waiting_for }
        };
        let (own, other, named) =
            (live("i:1", Some("b")), live("i:1", Some("a")), live("i:1", None));
        assert_eq!(of("b", Some("i:2"), Some(&other)), expect(Some("i:2"), Some("b"), None));
        assert_eq!(of("b", None, Some(&own)), expect(Some("i:1"), Some("b"), Some("b")));
        for live in [Some(&other), Some(&named), None] {
            assert_eq!(of("b", None, live), expect(None, None, Some("b")));
        }
        // Without pods no image runs. The mark stays what it was, so that the build's image is still waited for later.
        let suspended = BuiltImage::of("b", None, Some(&other), false);
        assert_eq!(suspended, expect(Some("i:1"), Some("a"), Some("b")));
    }
}
