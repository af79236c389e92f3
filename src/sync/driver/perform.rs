//! Sends the requests to the API server that a machine asks for.

use std::collections::HashMap;

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, PostParams};

use crate::api::GitSync;
use crate::cluster::client::call;
use crate::cluster::identity::{Account, acting_as};
use crate::cluster::ssa;
use crate::sync::io::effect::{Call, Replied, Reply};

/// The clients of one reconcile: the one with the operator's own rights, and one for each ServiceAccount that it acts as.
pub(super) struct Clients {
    own: Client,
    /// By `namespace/name` of the ServiceAccount.
    acting: HashMap<String, Client>,
}

impl Clients {
    pub(super) fn new(own: &Client) -> Self {
        Self { own: own.clone(), acting: HashMap::new() }
    }

    /// The client of an account; `None` is the operator itself.
    pub(super) fn of(&mut self, account: Option<&Account>) -> Client {
        let Some(account) = account else { return self.own.clone() };
        let own = &self.own;
        let key = format!("{}/{}", account.namespace, account.name);
        self.acting.entry(key).or_insert_with(|| acting_as(account, own)).clone()
    }
}

/// Sends one request about an object of this namespace.
pub(super) fn perform(
    client: Client,
    namespace: &str,
    request: Call,
) -> impl Future<Output = Replied> + Send + use<> {
    let namespace = namespace.to_owned();
    async move {
        let of_kind = |kind| ssa::api_of_kind(&client, &namespace, kind);
        let syncs = || ssa::api_of::<GitSync>(&client, &namespace);
        let object = |object| Reply::Object(Box::new(object));
        match request {
            Call::Rehearse { id, manifest, mode } => {
                let api = of_kind(id.kind);
                ssa::rehearse(&api, ssa::SYNC_MANAGER, manifest, &mode).await.map(|()| Reply::Done)
            }
            Call::Apply { id, manifest, mode } => {
                let api = of_kind(id.kind);
                ssa::apply(&api, ssa::SYNC_MANAGER, manifest, &mode).await.map(object)
            }
            Call::ReplaceSpec { id, version, spec } => {
                ssa::replace_spec(&of_kind(id.kind), &id.name, version, spec).await.map(object)
            }
            Call::Get { id } => call(of_kind(id.kind).get(&id.name)).await.map(object),
            Call::Delete { id, uid, version } => {
                let deleted = ssa::delete(&of_kind(id.kind), &id.name, &uid, version).await;
                deleted.map(Reply::Deleted)
            }
            Call::GetSync { name } => call(syncs().get(&name)).await.map(object),
            Call::ClearStatus { name, version, fields } => {
                ssa::clear_status(&syncs(), &name, version, &fields).await.map(object)
            }
            Call::Status { name, uid, status } => {
                let (client, namespace) = (&client, &namespace);
                ssa::apply_status::<GitSync>(client, namespace, &name, &uid, &status)
                    .await
                    .map(object)
            }
            Call::Finalizers { name, version, finalizers } => {
                ssa::set_finalizers(&syncs(), &name, version, &finalizers).await.map(object)
            }
            Call::FindAccount(account) => {
                let accounts: Api<ServiceAccount> =
                    Api::namespaced(client.clone(), &account.namespace);
                let found = call(accounts.get(&account.name)).await;
                found.map(|account| is_there(&account.metadata))
            }
            Call::TryAccount => {
                let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
                let review = SelfSubjectReview::default();
                call(reviews.create(&PostParams::default(), &review)).await.map(|_| Reply::Done)
            }
            Call::FindNamespace => {
                let namespaces: Api<Namespace> = Api::all(client.clone());
                call(namespaces.get(&namespace)).await.map(|found| is_there(&found.metadata))
            }
        }
    }
}

fn is_there(meta: &ObjectMeta) -> Reply {
    Reply::Found { deleting: meta.deletion_timestamp.is_some() }
}

#[cfg(test)]
#[path = "tests/perform.rs"]
mod tests;
