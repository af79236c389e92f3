//! Asks the API server who the operator is.

use std::time::Duration;

use convoke_core::cluster::account::OperatorAccount;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::{Api, Client};

use crate::cluster::client::call;

/// How long a start waits for the answer. Statuses that are written before it name the default account.
const MAX_WAIT_AT_START: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_mins(5);

/// Asks until there is an answer. Returns before that when the API server takes long, and goes on asking.
pub async fn learn(client: Client, operator: OperatorAccount) {
    let asking = tokio::spawn(ask(client, operator));
    let _ = tokio::time::timeout(MAX_WAIT_AT_START, asking).await;
}

async fn ask(client: Client, operator: OperatorAccount) {
    let reviews: Api<SelfSubjectReview> = Api::all(client);
    let mut pause = FIRST_PAUSE;
    loop {
        let review = SelfSubjectReview::default();
        match call(reviews.create(&PostParams::default(), &review)).await {
            Ok(review) => {
                let user = review.status.and_then(|status| status.user_info?.username);
                return operator.set_user(&user.unwrap_or_default());
            }
            Err(error) => {
                tracing::debug!(%error, "the API server does not say who the operator is");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(MAX_PAUSE);
    }
}
