//! The image of the operator: builds push with it. So an installation names it once, wherever its registry is.

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::OnceCell;

use crate::cluster::client::{CallError, call};

/// The container of the operator in its pod.
const CONTAINER: &str = "convoke";
/// The variable with the name of the operator's pod.
const POD_NAME: &str = "POD_NAME";
/// The published image of this version: for an operator that runs in no pod.
pub const PUBLISHED: &str = concat!("ghcr.io/convoke-dev/convoke:", env!("CARGO_PKG_VERSION"));

/// The image of the operator.
pub struct OwnImage {
    /// What the options say.
    given: Option<String>,
    pod: Option<String>,
    read: OnceCell<Option<String>>,
}

impl OwnImage {
    /// The image that the options say. Without one it is that of the pod in which this process runs, or else [`PUBLISHED`].
    #[must_use]
    pub fn new(given: Option<String>) -> Self {
        let pod = std::env::var(POD_NAME).ok().filter(|name| !name.is_empty());
        Self { given, pod, read: OnceCell::new() }
    }

    /// The image. The pod is read once.
    ///
    /// # Errors
    /// When the API server does not answer as it should. A missing right is no error.
    pub async fn get(&self, client: &Client, namespace: &str) -> Result<&str, CallError> {
        let (None, Some(pod)) = (&self.given, &self.pod) else {
            return Ok(self.given.as_deref().unwrap_or(PUBLISHED));
        };
        let read = || async {
            let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
            let one = ListParams::default().fields(&format!("metadata.name={pod}")).limit(1);
            match call(api.list(&one)).await {
                Ok(found) => Ok(found.items.first().and_then(image)),
                Err(error) if error.is_forbidden() => Ok(None),
                Err(error) => Err(error),
            }
        };
        let read = self.read.get_or_try_init(async || {
            let found = read().await?;
            if found.is_none() {
                tracing::warn!(
                    pod,
                    image = PUBLISHED,
                    "the operator cannot see the image of its own pod: builds use the published one (--image sets another)"
                );
            }
            Ok(found)
        });
        Ok(read.await?.as_deref().unwrap_or(PUBLISHED))
    }
}

/// The image of the operator's container.
fn image(pod: &Pod) -> Option<String> {
    let containers = &pod.spec.as_ref()?.containers;
    let named = containers.iter().find(|container| container.name == CONTAINER);
    // Whoever gives it another name has one.
    let only = containers.first().filter(|_| containers.len() == 1);
    named.or(only)?.image.clone().filter(|image| !image.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn b3_an_operator_without_a_pod_uses_the_published_image() {
        let operator = include_str!("../../../deploy/operator.yaml");
        assert!(operator.contains(&format!("image: {PUBLISHED}\n")), "{PUBLISHED}");
    }

    #[test]
    fn b3_the_image_of_the_operator_is_that_of_its_container() {
        let image_of = |containers: serde_json::Value| {
            let pod = json!({"metadata": {}, "spec": {"containers": containers}});
            image(&serde_json::from_value(pod).expect("a pod"))
        };
        let proxy = json!({"name": "proxy", "image": "proxy:1"});
        let ours = json!({"name": "convoke", "image": "mirror.example.com/convoke:2"});
        assert_eq!(image_of(json!([proxy, ours])).as_deref(), Some("mirror.example.com/convoke:2"));
        let renamed = json!({"name": "operator", "image": "convoke:2"});
        assert_eq!(image_of(json!([renamed])).as_deref(), Some("convoke:2"));
        assert_eq!(image_of(json!([proxy, renamed])), None, "nobody knows which");
    }
}
