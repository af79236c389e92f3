//! A forge: the repository `/team/agents.git` behind one origin with the API for commit statuses, as GitHub, GitLab and Gitea document it.
#![allow(dead_code, reason = "every test crate uses its own part")]
#![allow(clippy::expect_used, clippy::panic, clippy::disallowed_types, clippy::disallowed_methods)]

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Response, StatusCode};
use serde_json::{Value, json};

/// A status that was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// `GitHub`, `GitLab` or `Gitea`.
    pub forge: &'static str,
    pub commit: String,
    pub state: String,
    pub context: String,
    pub description: String,
}

struct Shared {
    git: SocketAddr,
    token: String,
    set: Mutex<Vec<Set>>,
    /// How many of the next requests are told to come again in a second.
    busy: Mutex<usize>,
}

/// Ends when dropped.
pub struct ForgeServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

impl ForgeServer {
    /// A forge in front of a Git server with the repository `team.git`. Its API takes this token.
    pub async fn start(address: IpAddr, git: SocketAddr, token: &str) -> Self {
        let (set, busy) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { git, token: token.to_owned(), set, busy });
        let listener = tokio::net::TcpListener::bind((address, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let routes = axum::Router::new().fallback(answer).with_state(shared.clone());
        let task = tokio::spawn(async move {
            axum::serve(listener, routes).await.expect("the server runs");
        });
        Self { address, shared, task }
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn url(&self) -> String {
        format!("{}/team/agents.git", self.origin())
    }

    /// The statuses that were set.
    pub fn set(&self) -> Vec<Set> {
        self.shared.set.lock().expect("lock").clone()
    }

    /// Tells so many of the next requests to come again in a second.
    pub fn be_busy(&self, times: usize) {
        *self.shared.busy.lock().expect("lock") = times;
    }

    /// How often that will still be told.
    pub fn busy(&self) -> usize {
        *self.shared.busy.lock().expect("lock")
    }
}

impl Drop for ForgeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn says(status: u16, body: &Value) -> Response<Body> {
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Body::from(body.to_string())).expect("a response")
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.expect("a body");
    let path = head.uri.path_and_query().map_or("", |path| path.as_str()).to_owned();
    if !path.starts_with("/api/") {
        let Some(rest) = path.strip_prefix("/team/agents.git") else {
            return says(404, &json!({}));
        };
        let url = format!("http://{}/team.git{rest}", shared.git);
        let asked =
            reqwest::Client::new().request(head.method, url).headers(git_headers(&head.headers));
        let answer = asked.body(body).send().await.expect("the Git server");
        let mut response = Response::builder().status(answer.status());
        if let Some(kind) = answer.headers().get("content-type") {
            response = response.header("content-type", kind);
        }
        let bytes = answer.bytes().await.expect("an answer");
        return response.body(Body::from(bytes)).expect("a response");
    }
    {
        let mut busy = shared.busy.lock().expect("lock");
        if *busy > 0 {
            *busy -= 1;
            let mut response = says(429, &json!({"message": "too many requests"}));
            response.headers_mut().insert("retry-after", "1".parse().expect("a value"));
            return response;
        }
    }
    assert_eq!(head.method, Method::POST);
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let (forge, commit, given, states) =
        if let Some(commit) = path.strip_prefix("/api/v3/repos/team/agents/statuses/") {
            let given = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
            ("GitHub", commit, given, &["error", "failure", "pending", "success"][..])
        } else if let Some(commit) = path.strip_prefix("/api/v4/projects/team%2Fagents/statuses/") {
            let states = &["pending", "running", "success", "failed", "canceled"][..];
            ("GitLab", commit, header("private-token"), states)
        } else if let Some(commit) = path.strip_prefix("/api/v1/repos/team/agents/statuses/") {
            let given = header("authorization").and_then(|value| value.strip_prefix("token "));
            ("Gitea", commit, given, &["error", "failure", "pending", "success", "warning"][..])
        } else {
            return says(404, &json!({"message": "Not Found"}));
        };
    if given != Some(shared.token.as_str()) {
        return says(401, &json!({"message": "Bad credentials"}));
    }
    let Ok(body) = serde_json::from_slice::<Value>(&body) else { return says(400, &json!({})) };
    let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
    let context = text(if forge == "GitLab" { "name" } else { "context" });
    let new = Set {
        forge,
        commit: commit.to_owned(),
        state: text("state"),
        context,
        description: text("description"),
    };
    if !states.contains(&new.state.as_str()) || new.context.is_empty() {
        return says(422, &json!({"message": "Validation Failed"}));
    }
    let mut set = shared.set.lock().expect("lock");
    let is_same =
        |one: &Set| (one.forge, &one.commit, &one.state) == (forge, &new.commit, &new.state);
    if forge == "GitLab" && set.iter().any(is_same) {
        let message = "Cannot transition status via :drop from :failed (Reason(s): Status cannot transition via \"drop\")";
        return says(400, &json!({"message": message}));
    }
    set.push(new);
    says(StatusCode::CREATED.as_u16(), &json!({"id": set.len()}))
}

/// What a Git server needs of the headers.
fn git_headers(all: &HeaderMap) -> HeaderMap {
    let names = ["content-type", "accept", "git-protocol", "authorization"];
    let kept = names.into_iter().filter_map(|name| Some((name, all.get(name)?.clone())));
    kept.map(|(name, value)| (name.parse().expect("a name"), value)).collect()
}
