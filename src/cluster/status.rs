//! The one place where controllers write a status.
//!
//! A write can meet an object that is gone, an object that was made anew under the same name, and a kind that is not served at
//! the moment. [`write`] handles all three, and says what became of the status. Events are told by the caller.
//!
//! The status of a GitSync is not written here. The sync engine decides itself what each answer means, without I/O
//! (docs/decisions/0017); its driver only sends the request. Both use [`ssa::apply_status`].

use kube::{Client, Resource};
use serde::Serialize;

use super::client::CallError;
use super::live::ManagedStore;
use super::ssa;
use super::store::Key;

/// The object whose status is written.
pub struct Target<'a> {
    /// The client with the operator's rights.
    pub client: &'a Client,
    /// The store of the object's kind. It learns what the API server answers.
    pub store: &'a dyn ManagedStore,
    /// Namespace and name.
    pub key: &'a Key,
    /// Only the object with this UID gets the status.
    pub uid: &'a str,
}

/// What became of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The status is as it was: nothing was sent.
    Unchanged,
    /// The status was written.
    Written,
    /// The object is gone. The store knows that now.
    Gone,
    /// Another object has the name now. The watch brings it.
    Replaced,
}

/// Writes a status if it differs from the old one.
///
/// # Errors
/// The call's error. That includes the answer that the kind is not served: then nothing is known of the object, and the
/// write has to be tried again.
pub async fn write<K, S>(
    target: &Target<'_>,
    old: Option<&S>,
    new: &S,
) -> Result<Written, CallError>
where
    K: Resource<DynamicType = ()>,
    S: Serialize + PartialEq,
{
    if old == Some(new) {
        return Ok(Written::Unchanged);
    }
    let Target { client, store, key, uid } = target;
    match ssa::apply_status::<K>(client, &key.namespace, &key.name, uid, new).await {
        Ok(object) => {
            store.answered(object);
            Ok(Written::Written)
        }
        Err(error) if error.is_gone() => {
            store.deleted_uid(key, uid);
            Ok(Written::Gone)
        }
        Err(error) if error.is_conflict() => Ok(Written::Replaced),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response, StatusCode};
    use kube::client::Body;
    use kube::core::DeserializeGuard;
    use serde_json::json;

    use super::*;
    use crate::api::AgentBuild;
    use crate::api::agent_build::AgentBuildStatus;
    use crate::cluster::live::{Managed, Stores};
    use crate::cluster::reflector;

    /// Writes a status, and is refused with that code and the name of an object. Gives what became of the status, `None` after
    /// an error, and whether the object is still known.
    async fn refused(code: u16, name: &str) -> (Option<Written>, bool) {
        let failure = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
            "reason": "r", "message": "m", "details": {"name": name, "kind": "agentbuilds"}});
        let client = Client::new(
            tower::service_fn(move |_: Request<Body>| {
                let reply = failure.to_string();
                async move {
                    let mut response = Response::new(Body::from(reply.into_bytes()));
                    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
                    Ok::<_, Infallible>(response)
                }
            }),
            "team",
        );
        let stores = Stores::new();
        let build = json!({"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild",
            "metadata": {"name": "a", "namespace": "team", "uid": "u", "resourceVersion": "1"},
            "spec": {"source": {"gitSync": {}}, "output": {"image": "team/a"}}});
        let build = serde_json::from_value::<DeserializeGuard<AgentBuild>>(build);
        let (key, entry) = reflector::entry::<Managed<AgentBuild>>(build.expect("an AgentBuild"));
        stores.agent_builds.wrote(key.clone(), entry);
        let old = AgentBuildStatus::default();
        let new = AgentBuildStatus { message: Some("new".into()), ..AgentBuildStatus::default() };
        let store = stores.agent_builds.as_ref();
        let target = Target { client: &client, store, key: &key, uid: "u" };
        let unchanged = write::<AgentBuild, _>(&target, Some(&old), &old).await;
        assert_eq!(unchanged.ok(), Some(Written::Unchanged), "nothing is sent");
        let written = write::<AgentBuild, _>(&target, Some(&old), &new).await;
        (written.ok(), stores.agent_builds.get(&key).is_some())
    }

    #[tokio::test]
    async fn b8_a_status_of_a_kind_that_is_not_served_is_tried_again() {
        for (code, name, expected) in [
            (404, "", (None, true)),
            (500, "a", (None, true)),
            (404, "a", (Some(Written::Gone), false)),
            (409, "a", (Some(Written::Replaced), true)),
        ] {
            assert_eq!(refused(code, name).await, expected, "{code} about {name:?}");
        }
    }
}
