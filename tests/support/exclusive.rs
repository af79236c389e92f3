//! Control planes that one test has for itself, one after the other.

use std::sync::Mutex;

use super::Cluster;

/// Control planes that tests have given back.
static IDLE: Mutex<Vec<Cluster>> = Mutex::new(Vec::new());

/// A control plane that one test has for itself. After it another test gets the same one, brought back to what it was at first:
/// that takes no time, and a start takes eight seconds of processor time.
#[derive(Debug)]
pub struct Exclusive(Option<Cluster>);

impl std::ops::Deref for Exclusive {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        self.0.as_ref().expect("only dropping takes it")
    }
}

impl Drop for Exclusive {
    /// After a test that failed it ends: who knows what that left behind.
    fn drop(&mut self) {
        let cluster = self.0.take().filter(|cluster| cluster.pods.is_none());
        if let Some(cluster) = cluster.filter(|_| !std::thread::panicking()) {
            IDLE.lock().expect("lock").push(cluster);
        }
    }
}

impl Cluster {
    /// A control plane for one test: one that counts writes or stops an operator.
    pub async fn exclusive() -> Exclusive {
        let idle = IDLE.lock().expect("lock").pop();
        let cluster = match idle {
            Some(cluster) => tokio::task::spawn_blocking(|| {
                cluster.order("reset");
                cluster
            })
            .await
            .expect("reset the control plane"),
            None => {
                let cluster = Self::start().await;
                if cluster.pods.is_none() {
                    cluster.order("mark");
                }
                cluster
            }
        };
        Exclusive(Some(cluster))
    }
}
