//! Reading a kind as text: whole, page by page, and then as a stream of what happens.
//!
//! kube's own list makes every object of a page typed before the first is looked at, and asks for the next page only
//! after that. Here one object at a time is typed, while the next page is on its way (docs/decisions/0013).

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::{AsyncBufReadExt, AsyncReadExt};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::client::{CALL_DEADLINE, CallError, call, call_within};

/// Objects of one page of a list. Two pages of each kind are in memory as text: at a start that is what takes the most.
const PAGE: u32 = 200;
/// How long one page may take. The API server gives up after 60 s; one that is asked again sooner begins anew.
const PAGE_DEADLINE: Duration = Duration::from_secs(65);
/// Most bytes of one page. etcd takes 1.5 MiB for an object.
const PAGE_BYTES: usize = 512 << 20;
/// Most bytes of one event.
const EVENT_BYTES: u64 = 16 << 20;
/// Objects that are read without giving way to others.
const BREATH: usize = 32;
/// Load balancers drop quiet connections at 240 s; a watch ends before that by itself.
pub const WATCH_SECONDS: u32 = 200;

/// What a list or an event says of an object, whatever its kind.
#[derive(Debug, Deserialize)]
pub struct Head {
    /// The part of `metadata` that says which object it is.
    pub metadata: HeadMeta,
}

/// See [`Head`].
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HeadMeta {
    /// `metadata.namespace`; empty for cluster-scoped objects.
    pub namespace: String,
    /// `metadata.name`
    pub name: String,
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub resource_version: String,
}

/// The metadata of any object, whole.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// `metadata`
    pub metadata: ObjectMeta,
}

#[derive(Deserialize)]
struct Page<'a> {
    metadata: PageMeta,
    /// `null` where there are none. What has no such field is no list, and does not prove that nothing is there.
    #[serde(borrow, deserialize_with = "Option::deserialize")]
    items: Option<Vec<Fields<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMeta {
    resource_version: String,
    r#continue: String,
}

#[derive(Deserialize)]
struct Line<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// What a watch shows. Objects are JSON text.
pub enum Event<'a> {
    /// The server has taken the request: from now on it tells what happens.
    Begun,
    /// An object is there, or has changed.
    Applied(&'a str),
    /// An object is gone.
    Deleted(Head),
}

/// One kind, everywhere or in one namespace.
#[derive(Clone)]
pub struct Source {
    client: Client,
    /// Path of the collection.
    url: String,
    labels: Option<String>,
}

/// An object's fields, each with its text, in order.
struct Fields<'a>(Vec<(Name<'a>, &'a RawValue)>);

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

impl Fields<'_> {
    /// The text without `metadata.managedFields`: they are half of it, and nobody reads them here.
    fn slim(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, "", |text, name, value| {
            let metadata = (name == "metadata").then(|| serde_json::from_str::<Fields<'_>>(value));
            match metadata {
                Some(Ok(metadata)) => {
                    metadata.write(text, "managedFields", |text, _, value| text.push_str(value));
                }
                _ => text.push_str(value),
            }
        });
        text
    }

    fn write(&self, text: &mut String, without: &str, value: impl Fn(&mut String, &str, &str)) {
        text.push('{');
        for (Name(name), raw) in self.0.iter().filter(|(Name(name), _)| name != without) {
            if !text.ends_with('{') {
                text.push(',');
            }
            // A string is always JSON.
            text.push_str(&serde_json::to_string(name).unwrap_or_default());
            text.push(':');
            value(text, name, raw.get());
        }
        text.push('}');
    }
}

fn unreadable(error: serde_json::Error) -> CallError {
    kube::Error::SerdeError(error).into()
}

fn no_version() -> CallError {
    kube::Error::Service("the API server sent no resourceVersion".into()).into()
}

async fn answer(asked: &mut JoinSet<Result<Bytes, CallError>>) -> Result<Bytes, CallError> {
    match asked.join_next().await {
        Some(Ok(text)) => text,
        Some(Err(error)) => Err(kube::Error::Service(error.into()).into()),
        None => Err(CallError::Deadline(PAGE_DEADLINE)),
    }
}

impl Source {
    /// The collection at `url`, restricted to what these labels select.
    #[must_use]
    pub fn new(client: Client, url: &str, labels: Option<&str>) -> Self {
        Self { client, url: url.to_owned(), labels: labels.map(str::to_owned) }
    }

    fn ask(&self, token: String, limit: u32) -> JoinSet<Result<Bytes, CallError>> {
        let params = ListParams {
            label_selector: self.labels.clone(),
            limit: Some(limit),
            continue_token: Some(token).filter(|token| !token.is_empty()),
            ..ListParams::default()
        };
        let (client, request) = (self.client.clone(), Request::new(&self.url).list(&params));
        let mut task = JoinSet::new();
        task.spawn(call_within(PAGE_DEADLINE, async move {
            let request = request.map_err(kube::Error::BuildRequest)?;
            let reply = client.send(request.map(kube::client::Body::from)).await?;
            let status = reply.status();
            let body = Limited::new(reply.into_body(), PAGE_BYTES).collect().await;
            let body = body.map_err(kube::Error::Service)?.to_bytes();
            if status.is_success() {
                return Ok(body);
            }
            let said = serde_json::from_slice(&body).unwrap_or_else(|_| {
                let text = String::from_utf8_lossy(&body[..body.len().min(1024)]).into_owned();
                Status::failure(&text, "Failed to parse error data").with_code(status.as_u16())
            });
            Err(kube::Error::Api(Box::new(said)))
        }));
        task
    }

    /// Reads every object; gives the version at which all of this was true. The read is consistent: what it does not
    /// show was not there.
    ///
    /// # Errors
    /// Those of the calls, and when `each` cannot read an object.
    pub async fn list(
        &self,
        mut each: impl FnMut(&str) -> serde_json::Result<()>,
    ) -> Result<String, CallError> {
        let mut asked = self.ask(String::new(), PAGE);
        loop {
            let text = answer(&mut asked).await?;
            let page: Page<'_> = serde_json::from_slice(&text).map_err(unreadable)?;
            let PageMeta { resource_version, r#continue } = page.metadata;
            let last = r#continue.is_empty();
            if !last {
                asked = self.ask(r#continue, PAGE);
            }
            for (number, item) in page.items.iter().flatten().enumerate() {
                each(&item.slim()).map_err(unreadable)?;
                if number % BREATH == BREATH - 1 {
                    tokio::task::yield_now().await;
                }
            }
            if last {
                return if resource_version.is_empty() {
                    Err(no_version())
                } else {
                    Ok(resource_version)
                };
            }
        }
    }

    /// The version that the server is at now, by a consistent read of next to nothing.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn version(&self) -> Result<String, CallError> {
        let text = answer(&mut self.ask(String::new(), 1)).await?;
        let page: Page<'_> = serde_json::from_slice(&text).map_err(unreadable)?;
        let version = page.metadata.resource_version;
        if version.is_empty() { Err(no_version()) } else { Ok(version) }
    }

    /// Shows what happens after `version`, and moves it on, until the server ends the watch.
    ///
    /// # Errors
    /// Those of the call and of the stream, what the server says in it (410: that version is too old), and when `on`
    /// cannot read an object. Then it can be tried again from `version`.
    pub async fn watch(
        &self,
        version: &mut String,
        mut on: impl FnMut(Event<'_>) -> serde_json::Result<()>,
    ) -> Result<(), CallError> {
        let params = WatchParams {
            label_selector: self.labels.clone(),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = Request::new(&self.url).watch(&params, version);
        let request = request.map_err(kube::Error::BuildRequest)?;
        // The server ends it in time; one that does not is not waited for.
        let deadline = Instant::now() + Duration::from_secs(WATCH_SECONDS.into()) + CALL_DEADLINE;
        let mut events = Box::pin(call(self.client.request_stream(request)).await?);
        on(Event::Begun).map_err(unreadable)?;
        let mut text = Vec::new();
        loop {
            text.clear();
            text.shrink_to(64 << 10);
            let mut line = (&mut events).take(EVENT_BYTES);
            match timeout_at(deadline, line.read_until(b'\n', &mut text)).await {
                Err(_) => return Ok(()),
                Ok(Err(error)) => return Err(kube::Error::ReadEvents(error).into()),
                Ok(Ok(_)) => {}
            }
            // The end, perhaps in the middle of an event.
            if text.last() != Some(&b'\n') {
                return if text.len() as u64 == EVENT_BYTES {
                    Err(kube::Error::LinesCodecMaxLineLengthExceeded.into())
                } else {
                    Ok(())
                };
            }
            let Line { r#type, object } = serde_json::from_slice(&text).map_err(unreadable)?;
            let object = object.get();
            if r#type == "ERROR" {
                let status: Status = serde_json::from_str(object).map_err(unreadable)?;
                return Err(kube::Error::Api(Box::new(status)).into());
            }
            let head: Head = serde_json::from_str(object).map_err(unreadable)?;
            if head.metadata.resource_version.is_empty() {
                return Err(no_version());
            }
            let next = head.metadata.resource_version.clone();
            match r#type {
                "ADDED" | "MODIFIED" => {
                    let fields: Fields<'_> = serde_json::from_str(object).map_err(unreadable)?;
                    on(Event::Applied(&fields.slim()))
                }
                "DELETED" => on(Event::Deleted(head)),
                _ => Ok(()),
            }
            .map_err(unreadable)?;
            *version = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Response, StatusCode};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    /// A server that gives these replies, one after the other, and keeps what it was asked.
    fn server(replies: &[(u16, &str)]) -> (Source, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let mut replies: Vec<_> =
            replies.iter().rev().map(|(code, text)| (*code, (*text).to_owned())).collect();
        let kept = asked.clone();
        let service = service_fn(move |request: http::Request<Body>| {
            kept.lock().expect("lock").push(request.uri().to_string());
            let (code, text) = replies.pop().expect("not asked so often");
            let mut response = Response::new(Body::from(text.into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).expect("a code");
            async move { Ok::<_, std::convert::Infallible>(response) }
        });
        (Source::new(Client::new(service, "default"), "/api/v1/things", None), asked)
    }

    async fn list(
        replies: &[(u16, &str)],
    ) -> (Result<String, CallError>, Vec<String>, Vec<String>) {
        let (source, asked) = server(replies);
        let mut seen = Vec::new();
        let listed = source.list(|text| {
            seen.push(text.to_owned());
            Ok(())
        });
        let version = listed.await;
        let asked = asked.lock().expect("lock").clone();
        (version, seen, asked)
    }

    #[tokio::test]
    async fn pages_are_asked_for_until_the_last() {
        let first =
            r#"{"metadata":{"resourceVersion":"7","continue":"a b"},"items":[{"n":1},{"n":2}]}"#;
        let last = r#"{"metadata":{"resourceVersion":"7"},"items":[{"n":3}]}"#;
        let (version, seen, asked) = list(&[(200, first), (200, last)]).await;
        assert_eq!(version.expect("a version"), "7");
        assert_eq!(seen, [r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#]);
        assert_eq!(asked, ["/api/v1/things?&limit=200", "/api/v1/things?&limit=200&continue=a+b"]);
        let (version, seen, _) =
            list(&[(200, r#"{"metadata":{"resourceVersion":"7"},"items":null}"#)]).await;
        assert_eq!((version.expect("a version"), seen.len()), ("7".to_owned(), 0));
    }

    #[tokio::test]
    async fn half_a_list_is_an_error() {
        let first = r#"{"metadata":{"resourceVersion":"7","continue":"t"},"items":[{"n":1}]}"#;
        let gone = r#"{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old"}"#;
        let (version, ..) = list(&[(200, first), (410, gone)]).await;
        assert!(version.expect_err("expired").is_expired());
        let no_list = r#"{"kind":"Agent","metadata":{"name":"a","resourceVersion":"7"}}"#;
        let no_version = r#"{"metadata":{},"items":[]}"#;
        for broken in ["", "{", no_version, no_list, r#"{"items":[]}"#, "[]", "<html>"] {
            let (version, ..) = list(&[(200, broken)]).await;
            assert!(version.is_err(), "{broken}");
        }
        let (version, ..) = list(&[(502, "bad gateway")]).await;
        assert!(version.expect_err("not a list").words().contains("bad gateway"));
    }

    #[test]
    fn managed_fields_are_left_out_and_nothing_else() {
        let spec = r#""spec":{"managedFields":[1],"s":"\"managedFields\":[2]"}"#;
        let whole = format!(
            r#"{{"metadata":{{"annotations":{{"managedFields":"x"}},"managedFields":[{{"f:a":{{}}}}],"name":"ü"}},{spec}}}"#
        );
        let slim = |text: &str| serde_json::from_str::<Fields<'_>>(text).expect("object").slim();
        let expected = format!(
            r#"{{"metadata":{{"annotations":{{"managedFields":"x"}},"name":"ü"}},{spec}}}"#
        );
        assert_eq!(slim(&whole), expected);
        for other in [r#"{"metadata":{"name":"a"},"k\"":[{}]}"#, r#"{"n":1,"metadata":7}"#, "{}"] {
            assert_eq!(slim(other), other);
        }
    }

    async fn watch(text: &str) -> (Result<(), CallError>, String, Vec<String>) {
        let (source, _) = server(&[(200, text)]);
        let (mut version, mut seen) = ("7".to_owned(), Vec::new());
        let watched = source.watch(&mut version, |event| {
            match event {
                Event::Begun => {}
                Event::Applied(text) => seen.push(text.to_owned()),
                Event::Deleted(object) => seen.push(format!("-{}", object.metadata.uid)),
            }
            Ok(())
        });
        let ended = watched.await;
        (ended, version, seen)
    }

    #[tokio::test]
    async fn a_watch_moves_its_version_with_each_event_and_with_bookmarks() {
        let added = r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"8"}}}"#;
        let bookmark = r#"{"object":{"metadata":{"resourceVersion":"12"}},"type":"BOOKMARK"}"#;
        let deleted =
            r#"{"type":"DELETED","object":{"metadata":{"uid":"u","resourceVersion":"9"}}}"#;
        let (ended, version, seen) = watch(&format!("{added}\n{deleted}\n")).await;
        assert!(ended.is_ok(), "the server may end it");
        assert_eq!(version, "9");
        assert_eq!(seen, [r#"{"metadata":{"name":"a","resourceVersion":"8"}}"#, "-u"]);
        let (_, version, seen) = watch(&format!("{bookmark}\n")).await;
        assert_eq!((version.as_str(), seen.len()), ("12", 0));
        // What is cut off has not happened, yet.
        let (ended, version, seen) = watch(&format!("{added}\n{}", &deleted[..40])).await;
        assert!(ended.is_ok());
        assert_eq!((version.as_str(), seen.len()), ("8", 1));
    }

    #[tokio::test]
    async fn what_a_watch_cannot_go_on_from_is_said() {
        let gone = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old"}}"#;
        let (ended, version, _) = watch(&format!("{gone}\n")).await;
        assert!(ended.expect_err("expired").is_expired());
        assert_eq!(version, "7");
        let nowhere = r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#;
        for broken in ["{}", "null", nowhere] {
            let (ended, version, seen) = watch(&format!("{broken}\n")).await;
            assert!(ended.is_err(), "{broken}");
            assert_eq!((version.as_str(), seen.len()), ("7", 0));
        }
    }
}
