//! The only place that writes objects: server-side apply, deletes with preconditions, statuses.
//!
//! The API server behaves as follows (tested with 1.36). An apply with `resourceVersion: "1"` creates the object, and is
//! answered with 409 if it exists, even with force. An apply with a `uid` never changes another object of the same name: it is
//! answered with 422 if there is one, and with 409 if there is none.

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Resource};
use serde_json::{Value, json};

use super::client::{CallError, call, failed};
pub use convoke_core::cluster::write::{Deleted, Mode, SYNC_MANAGER};

/// Field manager of children.
pub const CONTROLLER_MANAGER: &str = "convoke";
/// Field manager of statuses.
pub const STATUS_MANAGER: &str = "convoke-status";

/// A resource version that no object has any more. An apply with it only creates.
const CREATE_ONLY_VERSION: &str = "1";

/// The dynamic API of a kind in a namespace.
#[must_use]
pub fn api_of<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: &str,
) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(&K::group(&()), &K::version(&()), &K::kind(&()));
    let resource = ApiResource::from_gvk_with_plural(&gvk, &K::plural(&()));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// The dynamic API of a synced kind in a namespace.
#[must_use]
pub fn api_of_kind(client: &Client, namespace: &str, kind: crate::api::Kind) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(crate::api::GROUP, crate::api::VERSION, kind.as_str());
    Api::namespaced_with(
        client.clone(),
        namespace,
        &ApiResource::from_gvk_with_plural(&gvk, kind.plural()),
    )
}

/// Applies `object`, a whole manifest with `metadata.name`, and returns the object as the server holds it then.
///
/// # Errors
/// The call's error; a 409 on [`Mode::Create`] means that another object has the name.
pub async fn apply(
    api: &Api<DynamicObject>,
    manager: &str,
    object: Value,
    mode: &Mode,
) -> Result<DynamicObject, CallError> {
    let params = PatchParams::apply(manager).force().validation_strict();
    apply_with(api, &params, object, mode).await
}

/// Sends the same apply as a dry run: the server checks it and writes nothing.
///
/// # Errors
/// As [`apply`].
pub async fn rehearse(
    api: &Api<DynamicObject>,
    manager: &str,
    object: Value,
    mode: &Mode,
) -> Result<(), CallError> {
    let params = PatchParams::apply(manager).force().validation_strict().dry_run();
    apply_with(api, &params, object, mode).await.map(drop)
}

async fn apply_with(
    api: &Api<DynamicObject>,
    params: &PatchParams,
    mut object: Value,
    mode: &Mode,
) -> Result<DynamicObject, CallError> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match mode {
        Mode::Create => object["metadata"]["resourceVersion"] = json!(CREATE_ONLY_VERSION),
        Mode::Update { uid, version } => {
            object["metadata"]["uid"] = json!(uid);
            if let Some(version) = version {
                object["metadata"]["resourceVersion"] = json!(version.to_string());
            }
        }
    }
    call(api.patch(&name, params, &Patch::Apply(&object))).await
}

/// Replaces the whole spec of the object at this version, and changes nothing else.
///
/// # Errors
/// The call's error; a conflict when the object has changed since.
pub async fn replace_spec(
    api: &Api<DynamicObject>,
    name: &str,
    version: u64,
    spec: Value,
) -> Result<DynamicObject, CallError> {
    // A patch that names the version makes the server compare it.
    let patch = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version.to_string()},
        {"op": "replace", "path": "/spec", "value": spec},
    ]);
    let patch: json_patch::Patch =
        serde_json::from_value(patch).map_err(|error| failed(kube::Error::SerdeError(error)))?;
    let mut params = PatchParams::default().validation_strict();
    params.field_manager = Some(SYNC_MANAGER.into());
    call(api.patch(name, &params, &Patch::<()>::Json(patch))).await
}

/// Replaces the finalizers of the object at this version, and changes nothing else.
///
/// # Errors
/// The call's error; a conflict when the object has changed since.
pub async fn set_finalizers(
    api: &Api<DynamicObject>,
    name: &str,
    version: u64,
    finalizers: &[String],
) -> Result<DynamicObject, CallError> {
    let patch = json!([
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version.to_string()},
        {"op": "add", "path": "/metadata/finalizers", "value": finalizers},
    ]);
    let patch: json_patch::Patch =
        serde_json::from_value(patch).map_err(|error| failed(kube::Error::SerdeError(error)))?;
    let manager = Some(CONTROLLER_MANAGER.to_owned());
    let params = PatchParams { field_manager: manager, ..PatchParams::default() };
    call(api.patch(name, &params, &Patch::<()>::Json(patch))).await
}

/// Sets `spec.status: Cancelled` of the PipelineRun with this UID at this version, which makes Tekton stop it, and annotates it. An
/// apply would claim the field for ever.
///
/// # Errors
/// The call's error; a conflict when the object has changed since.
pub async fn cancel(
    api: &Api<DynamicObject>,
    name: &str,
    uid: &str,
    version: u64,
    annotations: &[(&str, &str)],
) -> Result<DynamicObject, CallError> {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let patch = json!({
        "metadata": {"uid": uid, "resourceVersion": version.to_string(), "annotations": annotations},
        "spec": {"status": "Cancelled"},
    });
    let manager = Some(CONTROLLER_MANAGER.to_owned());
    let params = PatchParams { field_manager: manager, ..PatchParams::default() };
    call(api.patch(name, &params, &Patch::Merge(&patch))).await
}

/// Annotates the object with this UID, at any version.
///
/// # Errors
/// The call's error; a conflict when it is another object by now.
pub async fn annotate(
    api: &Api<DynamicObject>,
    name: &str,
    uid: &str,
    annotations: &[(&str, &str)],
) -> Result<DynamicObject, CallError> {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let patch = json!({"metadata": {"uid": uid, "annotations": annotations}});
    let manager = Some(CONTROLLER_MANAGER.to_owned());
    let params = PatchParams { field_manager: manager, ..PatchParams::default() };
    call(api.patch(name, &params, &Patch::Merge(&patch))).await
}

/// Removes `spec.status` of the PipelineRun with this UID if it is this word: Tekton begins with a run that it was told to leave pending.
/// Adds annotations to those that it has. Tekton may write the status meanwhile, so any version will do.
///
/// # Errors
/// The call's error; a refusal when it is another object, or the word is another one by now.
pub async fn begin(
    api: &Api<DynamicObject>,
    name: &str,
    uid: &str,
    word: &str,
    annotations: &[(&str, &str)],
) -> Result<DynamicObject, CallError> {
    let mut patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": "/spec/status", "value": word},
        {"op": "remove", "path": "/spec/status"},
    ]);
    if let Some(patch) = patch.as_array_mut() {
        patch.extend(annotations.iter().map(|(key, value)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            json!({"op": "add", "path": format!("/metadata/annotations/{key}"), "value": value})
        }));
    }
    let patch: json_patch::Patch =
        serde_json::from_value(patch).map_err(|error| failed(kube::Error::SerdeError(error)))?;
    let manager = Some(CONTROLLER_MANAGER.to_owned());
    let params = PatchParams { field_manager: manager, ..PatchParams::default() };
    call(api.patch(name, &params, &Patch::<()>::Json(patch))).await
}

/// Removes these fields from the status of the object at this version. An apply could not: it leaves the fields of other writers.
///
/// # Errors
/// The call's error; a conflict when the object has changed since; a refusal when one of the fields does not exist.
pub async fn clear_status(
    api: &Api<DynamicObject>,
    name: &str,
    version: u64,
    fields: &[&str],
) -> Result<DynamicObject, CallError> {
    let version =
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version.to_string()});
    let removed =
        fields.iter().map(|field| json!({"op": "remove", "path": format!("/status/{field}")}));
    let patch = std::iter::once(version).chain(removed).collect::<Value>();
    let patch: json_patch::Patch =
        serde_json::from_value(patch).map_err(|error| failed(kube::Error::SerdeError(error)))?;
    let manager = Some(STATUS_MANAGER.to_owned());
    let params = PatchParams { field_manager: manager, ..PatchParams::default() };
    call(api.patch_status(name, &params, &Patch::<()>::Json(patch))).await
}

/// Creates `object`, a whole manifest with `metadata.name`. It needs only the right `create`; an apply would need `patch`, too.
///
/// # Errors
/// The call's error; a 409 means that another object has the name.
pub async fn create(api: &Api<DynamicObject>, object: Value) -> Result<(), CallError> {
    create_with(api, object, false).await
}

/// Sends the same create as a dry run: the server checks it and writes nothing.
///
/// # Errors
/// As [`create`].
pub async fn rehearse_create(api: &Api<DynamicObject>, object: Value) -> Result<(), CallError> {
    create_with(api, object, true).await
}

async fn create_with(
    api: &Api<DynamicObject>,
    object: Value,
    dry_run: bool,
) -> Result<(), CallError> {
    let object =
        serde_json::from_value(object).map_err(|error| failed(kube::Error::SerdeError(error)))?;
    let field_manager = Some(CONTROLLER_MANAGER.to_owned());
    let params = PostParams { dry_run, field_manager };
    call(api.create(&params, &object)).await.map(drop)
}

/// Applies the status of the object with this UID. Fields that are left out are removed, unless another writer has set them, too.
///
/// # Errors
/// The call's error.
pub async fn apply_status<K: Resource<DynamicType = ()>>(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
    status: &impl serde::Serialize,
) -> Result<DynamicObject, CallError> {
    let object = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name, "uid": uid},
        "status": status,
    });
    let params = PatchParams::apply(STATUS_MANAGER).force();
    call(api_of::<K>(client, namespace).patch_status(name, &params, &Patch::Apply(&object))).await
}

/// Deletes the object with this UID at this version, and no other.
///
/// # Errors
/// The call's error; "not found" is [`Deleted::Gone`] and a conflict is [`Deleted::Changed`].
pub async fn delete(
    api: &Api<DynamicObject>,
    name: &str,
    uid: &str,
    version: u64,
) -> Result<Deleted, CallError> {
    delete_with(api, name, DeleteParams::background(), (uid, version)).await
}

/// The same. The object stays until the objects are gone that it owns and that block its deletion.
///
/// # Errors
/// As [`delete`].
pub async fn delete_after_dependents(
    api: &Api<DynamicObject>,
    name: &str,
    uid: &str,
    version: u64,
) -> Result<Deleted, CallError> {
    delete_with(api, name, DeleteParams::foreground(), (uid, version)).await
}

async fn delete_with(
    api: &Api<DynamicObject>,
    name: &str,
    params: DeleteParams,
    (uid, version): (&str, u64),
) -> Result<Deleted, CallError> {
    let preconditions =
        Preconditions { uid: Some(uid.to_owned()), resource_version: Some(version.to_string()) };
    let params = params.preconditions(preconditions);
    match call(api.delete(name, &params)).await {
        // The reply holds the object when finalizers keep it. Some built-in kinds also reply with an object that is gone.
        Ok(either) => Ok(match either.left() {
            Some(object) if object.metadata.finalizers.as_ref().is_some_and(|f| !f.is_empty()) => {
                Deleted::Terminating(Box::new(object))
            }
            _ => Deleted::Gone,
        }),
        Err(error) if error.is_gone() => Ok(Deleted::Gone),
        Err(error) if error.is_conflict() => Ok(Deleted::Changed),
        Err(error) => Err(error),
    }
}
