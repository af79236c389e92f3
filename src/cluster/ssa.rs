//! The only place that writes objects: server-side apply, guarded deletes, status.
//!
//! Proven on kube-apiserver 1.36: an apply that carries `resourceVersion: "1"` creates, and answers 409 when
//! the object exists (even with force); one that carries a `uid` never touches another object of that name
//! (422 when it exists, 409 when nothing does).

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

/// A resource version that no object ever has again: makes an apply create-only.
const NEVER: &str = "1";

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

/// Server-side applies `object` (a whole manifest with `metadata.name`) and returns what the server holds now.
///
/// # Errors
/// The call's error; a 409 on [`Mode::Create`] means that somebody else's object has the name.
pub async fn apply(
    api: &Api<DynamicObject>,
    manager: &str,
    object: Value,
    mode: &Mode,
) -> Result<DynamicObject, CallError> {
    let params = PatchParams::apply(manager).force().validation_strict();
    apply_with(api, &params, object, mode).await
}

/// Asks the server what it would say to the same apply, without writing anything.
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
        Mode::Create => object["metadata"]["resourceVersion"] = json!(NEVER),
        Mode::Update { uid, version } => {
            object["metadata"]["uid"] = json!(uid);
            if let Some(version) = version {
                object["metadata"]["resourceVersion"] = json!(version.to_string());
            }
        }
    }
    call(api.patch(&name, params, &Patch::Apply(&object))).await
}

/// Replaces the whole spec of the object at this version, without touching anything else of it.
///
/// # Errors
/// The call's error; a conflict when the object changed since.
pub async fn replace_spec(
    api: &Api<DynamicObject>,
    name: &str,
    version: u64,
    spec: Value,
) -> Result<DynamicObject, CallError> {
    // Naming the version in the patch makes the server compare it.
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

/// Replaces the finalizers of the object at this version, without touching anything else of it.
///
/// # Errors
/// The call's error; a conflict when the object changed since.
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

/// Removes these fields from the status of the object at this version, whoever has written them: an apply leaves those of others.
///
/// # Errors
/// The call's error; a conflict when the object changed since; a refusal when one of the fields is not there.
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

/// Creates `object` (a whole manifest with `metadata.name`) and gives nothing back. Needs no right but `create`, where
/// an apply needs `patch`, too.
///
/// # Errors
/// The call's error; a 409 means that an object has the name.
pub async fn create(api: &Api<DynamicObject>, object: Value) -> Result<(), CallError> {
    let object =
        serde_json::from_value(object).map_err(|error| failed(kube::Error::SerdeError(error)))?;
    let params =
        PostParams { field_manager: Some(CONTROLLER_MANAGER.to_owned()), ..PostParams::default() };
    call(api.create(&params, &object)).await.map(drop)
}

/// Replaces the status of the object with this uid. Fields that are left out are removed, as far as nobody else has written them.
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

/// Deletes exactly the object with this uid at this version.
///
/// # Errors
/// The call's error; "not found" is [`Deleted::Gone`] and a conflict is [`Deleted::Changed`].
pub async fn delete(
    api: &Api<DynamicObject>,
    name: &str,
    uid: &str,
    version: u64,
) -> Result<Deleted, CallError> {
    let preconditions =
        Preconditions { uid: Some(uid.to_owned()), resource_version: Some(version.to_string()) };
    let params = DeleteParams::background().preconditions(preconditions);
    match call(api.delete(name, &params)).await {
        // An object comes back when finalizers keep it; a built-in kind may also answer with the object that went.
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
