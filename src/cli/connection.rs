//! Reads the cluster with the rights of the person who runs a command. `get` and `list` on our kinds in one namespace are enough.

use std::collections::BTreeMap;

use clap::Args as ClapArgs;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, Resource};
use serde_json::Value;

use super::{CLUSTER, Failure, USAGE};
use crate::api::{GitSync, Kind, ObjectId};
use crate::cluster::client::{CallError, call, connect_for_upgrades, connect_to};
use crate::cluster::ssa::{api_of, api_of_kind};
use convoke_core::sync::preview::LiveManifest;

/// Objects of one page of a list.
const PAGE_OBJECTS: u32 = 500;
/// Pages of the longest list: 100,000 objects.
const MAX_PAGES: usize = 200;

/// The options that name the cluster and the namespace.
#[derive(Debug, ClapArgs)]
pub struct ConnectionArgs {
    /// Namespace [default: that of the context]
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Context of the kubeconfig [default: the current one]
    #[arg(long)]
    pub context: Option<String>,
}

/// A client, and the namespace that a command works in.
pub struct Connection {
    /// The client, with the rights of the person who runs the command.
    pub client: Client,
    /// The namespace, from the arguments or the context.
    pub namespace: String,
}

/// Runs a command that talks to the cluster.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(CLUSTER, format!("cannot start: {error}")))?
        .block_on(work)
}

impl Connection {
    /// Makes a client. No request is sent yet.
    pub async fn open(args: &ConnectionArgs) -> Result<Self, Failure> {
        Self::with(args, connect_to(args.context.as_deref()).await)
    }

    /// Makes a client whose connections may become WebSockets. No request is sent yet.
    pub async fn open_for_upgrades(args: &ConnectionArgs) -> Result<Self, Failure> {
        Self::with(args, connect_for_upgrades(args.context.as_deref()).await)
    }

    fn with(args: &ConnectionArgs, client: Result<Client, kube::Error>) -> Result<Self, Failure> {
        let client = client.map_err(|error| {
            Failure::new(CLUSTER, format!("cannot connect to the cluster: {error}"))
                .hint("set KUBECONFIG, or name a context of it with --context")
        })?;
        let namespace = args.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        Ok(Self { client, namespace })
    }

    /// The same in another namespace, if one is named.
    pub fn of_namespace(&self, namespace: Option<&str>) -> Self {
        let namespace = namespace.unwrap_or(&self.namespace).to_owned();
        Self { client: self.client.clone(), namespace }
    }

    /// The failure of the command after a failed call.
    pub fn failure(&self, verb: &str, plural: &str, error: &CallError) -> Failure {
        let namespace = &self.namespace;
        let failure =
            Failure::new(CLUSTER, format!("cannot {verb} {plural} in {namespace}: {error}"));
        if error.is_forbidden() {
            let right = format!("{verb} {plural}.convoke.dev");
            let hint = format!("ask for that right: kubectl auth can-i {right} -n {namespace}");
            Failure { lacks: Some(right), ..failure.hint(hint) }
        } else if error.is_unauthorized() {
            failure.hint("the server does not take the credentials of this context, which may have expired: kubectl auth whoami")
        } else if error.is_not_found() && !error.is_gone() {
            failure.hint("the definitions are not installed: convoke crds | kubectl apply --server-side -f -")
        } else {
            let hint = "is the cluster of this context reachable? kubectl cluster-info";
            Failure { may_pass: true, ..failure.hint(hint) }
        }
    }

    /// Lists all objects of a kind, page by page.
    async fn list(&self, api: Api<DynamicObject>, plural: &str) -> Result<Vec<Value>, Failure> {
        let mut objects = Vec::new();
        let mut params = ListParams::default().limit(PAGE_OBJECTS);
        for _ in 0..MAX_PAGES {
            let list =
                call(api.list(&params)).await.map_err(|e| self.failure("list", plural, &e))?;
            for mut object in list.items {
                object.metadata.managed_fields = None;
                // The object was parsed from JSON, so this cannot fail.
                objects.push(serde_json::to_value(&object).unwrap_or_default());
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(objects),
            }
        }
        let most = MAX_PAGES * PAGE_OBJECTS as usize;
        Err(Failure::new(CLUSTER, format!("there are more than {most} {plural}")))
    }

    /// The GitSyncs of the namespace that can be parsed, by name.
    pub async fn git_syncs(&self) -> Result<BTreeMap<String, GitSync>, Failure> {
        let plural = GitSync::plural(&());
        let api = api_of::<GitSync>(&self.client, &self.namespace);
        let objects = self.list(api, &plural).await?;
        let parse = |object| serde_json::from_value::<GitSync>(object).ok();
        let named = |sync: GitSync| Some((sync.metadata.name.clone()?, sync));
        Ok(objects.into_iter().filter_map(parse).filter_map(named).collect())
    }

    /// The objects of all synced kinds in the namespace.
    pub async fn live(&self) -> Result<BTreeMap<ObjectId, LiveManifest>, Failure> {
        let mut live = BTreeMap::new();
        for kind in Kind::ALL {
            let api = api_of_kind(&self.client, &self.namespace, kind);
            for mut object in self.list(api, kind.plural()).await? {
                // The items of a list have no apiVersion and kind.
                object["apiVersion"] = crate::api::API_VERSION.into();
                object["kind"] = kind.as_str().into();
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                live.insert(ObjectId::new(kind, name), LiveManifest::new(kind, object));
            }
        }
        Ok(live)
    }

    /// Takes the GitSync of this name, or the only one, out of `syncs`.
    pub fn choose(
        &self,
        syncs: &mut BTreeMap<String, GitSync>,
        name: Option<&str>,
    ) -> Result<GitSync, Failure> {
        let namespace = &self.namespace;
        let names: Vec<_> = syncs.keys().cloned().collect();
        let chosen = match (name, names.as_slice()) {
            (Some(name), _) => name.to_owned(),
            (None, [only]) => only.clone(),
            (None, []) => {
                return Err(Failure::new(CLUSTER, format!("there is no GitSync in {namespace}"))
                    .hint("name its namespace with -n"));
            }
            (None, _) => {
                let names = names.join(", ");
                let message = format!("there are several GitSyncs in {namespace}: {names}");
                return Err(Failure::new(USAGE, message).hint("name one with --sync"));
            }
        };
        syncs.remove(&chosen).ok_or_else(|| {
            let known = if names.is_empty() { "none".into() } else { names.join(", ") };
            Failure::new(CLUSTER, format!("there is no GitSync {chosen} in {namespace}"))
                .hint(format!("there: {known}"))
        })
    }
}
