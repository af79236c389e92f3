//! A port of a pod of the agent, forwarded by the API server as a stream in this process.

use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::io::DuplexStream;

use super::super::connection::Connection;
use super::super::pods::{Pods, Workload, is_ready, refused};
use super::super::{CLUSTER, Failure};
use super::http::{Dial, Dialled};
use crate::cluster::client::call;
use crate::controllers::agent::desired::PORT;

/// A pod whose port is forwarded. All streams lead to the same one, because it may remember the conversation for itself.
pub(super) struct Forward<'a> {
    connection: &'a Connection,
    pods: Api<Pod>,
    pod: String,
}

impl<'a> Forward<'a> {
    /// Chooses a Ready pod of an agent: the newest, which runs the newest revision.
    pub(super) async fn find(
        connection: &'a Connection,
        agent: &Workload,
    ) -> Result<Self, Failure> {
        let mut pods = Pods::of(connection, agent).await?;
        let ready = pods.list().await?.into_iter().filter(is_ready);
        let newest = ready.max_by(|one, other| {
            let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            created(one)
                .cmp(&created(other))
                .then_with(|| one.metadata.name.cmp(&other.metadata.name))
        });
        let pod = newest.and_then(|pod| pod.metadata.name).ok_or_else(|| pods.none("Ready pod"))?;
        let pods = Api::namespaced(connection.client.clone(), &connection.namespace);
        Ok(Self { connection, pods, pod })
    }
}

impl Dial for Forward<'_> {
    type Io = DuplexStream;

    async fn dial(&self) -> Result<Dialled<DuplexStream>, Failure> {
        let broken =
            || Failure::new(CLUSTER, format!("cannot reach port {PORT} of pod {}", self.pod));
        let port = u16::try_from(PORT).map_err(|_| broken())?;
        let mut forwarder =
            call(self.pods.portforward(&self.pod, &[port])).await.map_err(|error| {
                if error.is_forbidden() {
                    return refused(self.connection, "create", "pods/portforward", &error);
                }
                let failure = Failure::new(
                    CLUSTER,
                    format!("cannot reach port {PORT} of pod {}: {error}", self.pod),
                );
                failure
                    .hint("the API server must take WebSockets for port-forward: kubectl version")
            })?;
        let io = forwarder.take_stream(port).ok_or_else(broken)?;
        let refusal = match forwarder.take_error(port) {
            Some(error) => error.boxed(),
            None => futures::future::ready(None).boxed(),
        };
        Ok(Dialled { io, refusal })
    }
}
