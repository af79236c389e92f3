//! Reading a kind as text: whole, page by page, and then as a stream of what happens.
//!
//! kube's own list makes every object of a page typed before the first is looked at, and asks for the next page only
//! after that. Here one object at a time is typed, while the next page is on its way (docs/decisions/0013).

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::{AsyncBufReadExt, AsyncReadExt};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::client::{CALL_DEADLINE, CallError, call, call_within, failed};

/// Most objects of one page of a list.
pub const PAGE: u32 = 200;
/// Most bytes of one page. What has more is asked for again with fewer objects: the API server counts objects only.
const PAGE_BYTES: usize = 4 << 20;
/// Most bytes of a page of one object. etcd takes 1.5 MiB for it; JSON may make some times as much of that.
const OBJECT_BYTES: usize = 16 << 20;
/// Most pages in memory at once, of all kinds and namespaces: at a start they are what takes the most.
const PAGES: usize = 16;
/// How long one page may take. The API server gives up after 60 s; one that is asked again sooner begins anew.
const PAGE_DEADLINE: Duration = Duration::from_secs(65);
/// Most bytes of one event.
const EVENT_BYTES: u64 = 16 << 20;
/// Objects that are read without giving way to others, and bytes of them.
const BREATH: (usize, usize) = (32, 256 << 10);
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
    /// Objects of the first page of a list.
    page: u32,
}

/// A place for a page of a list.
type Room = SemaphorePermit<'static>;

/// Whoever has no place for a page does not ask for it.
static ROOM: Semaphore = Semaphore::const_new(PAGES);

async fn room() -> Result<Room, CallError> {
    ROOM.acquire().await.map_err(|closed| failed(kube::Error::Service(closed.into())))
}

/// What was asked for.
enum Reply {
    /// A page, in its place.
    Page(Bytes, Room),
    /// It has too many bytes.
    TooLong,
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
    failed(kube::Error::SerdeError(error))
}

fn no_version() -> CallError {
    failed(kube::Error::Service("the API server sent no resourceVersion".into()))
}

async fn answer(asked: &mut JoinSet<Result<Reply, CallError>>) -> Result<Reply, CallError> {
    match asked.join_next().await {
        Some(Ok(reply)) => reply,
        Some(Err(error)) => Err(failed(kube::Error::Service(error.into()))),
        None => Err(CallError::Deadline(PAGE_DEADLINE)),
    }
}

impl Source {
    /// The collection at `url`, restricted to what these labels select. A list begins with a page of so many objects;
    /// further ones have as many as their bytes allow.
    #[must_use]
    pub fn new(client: Client, url: &str, labels: Option<&str>, page: u32) -> Self {
        Self { client, url: url.to_owned(), labels: labels.map(str::to_owned), page }
    }

    fn ask(&self, token: &str, limit: u32, room: Room) -> JoinSet<Result<Reply, CallError>> {
        let params = ListParams {
            label_selector: self.labels.clone(),
            limit: Some(limit),
            continue_token: Some(token.to_owned()).filter(|token| !token.is_empty()),
            ..ListParams::default()
        };
        let most = if limit == 1 { OBJECT_BYTES } else { PAGE_BYTES };
        let (client, request) = (self.client.clone(), Request::new(&self.url).list(&params));
        let mut task = JoinSet::new();
        task.spawn(call_within(PAGE_DEADLINE, async move {
            let request = request.map_err(kube::Error::BuildRequest)?;
            let reply = client.send(request.map(kube::client::Body::from)).await?;
            let status = reply.status();
            let body = match Limited::new(reply.into_body(), most).collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) if limit > 1 && error.is::<LengthLimitError>() => {
                    return Ok(Reply::TooLong);
                }
                Err(error) => return Err(kube::Error::Service(error)),
            };
            if status.is_success() {
                return Ok(Reply::Page(body, room));
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
        let (mut token, mut limit) = (String::new(), self.page);
        let mut asked = self.ask(&token, limit, room().await?);
        loop {
            let Reply::Page(text, taken) = answer(&mut asked).await? else {
                limit = (limit / 4).max(1);
                asked = self.ask(&token, limit, room().await?);
                continue;
            };
            let page: Page<'_> = serde_json::from_slice(&text).map_err(unreadable)?;
            let PageMeta { resource_version, r#continue } = page.metadata;
            if text.len() < PAGE_BYTES / 4 {
                limit = (2 * limit).min(PAGE);
            }
            token = r#continue;
            let last = token.is_empty();
            // The next page is on its way while this one is read, if there is a place for it.
            let room_now = ROOM.try_acquire().ok().filter(|_| !last);
            let next = room_now.map(|room| self.ask(&token, limit, room));
            let (mut objects, mut bytes) = (0, 0);
            for item in page.items.iter().flatten() {
                let text = item.slim();
                (objects, bytes) = (objects + 1, bytes + text.len());
                each(&text).map_err(unreadable)?;
                drop(text);
                if objects >= BREATH.0 || bytes >= BREATH.1 {
                    (objects, bytes) = (0, 0);
                    tokio::task::yield_now().await;
                }
            }
            drop(page.items);
            drop((text, taken));
            if last {
                return if resource_version.is_empty() {
                    Err(no_version())
                } else {
                    Ok(resource_version)
                };
            }
            asked = match next {
                Some(asked) => asked,
                None => self.ask(&token, limit, room().await?),
            };
        }
    }

    /// The version that the server is at now, by a consistent read of next to nothing.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn version(&self) -> Result<String, CallError> {
        let reply = answer(&mut self.ask("", 1, room().await?)).await?;
        let Reply::Page(text, _room) = reply else { return Err(no_version()) };
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
        let request = request.map_err(|error| failed(kube::Error::BuildRequest(error)))?;
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
                Ok(Err(error)) => return Err(failed(kube::Error::ReadEvents(error))),
                Ok(Ok(_)) => {}
            }
            // The end, perhaps in the middle of an event.
            if text.last() != Some(&b'\n') {
                return if text.len() as u64 == EVENT_BYTES {
                    Err(failed(kube::Error::LinesCodecMaxLineLengthExceeded))
                } else {
                    Ok(())
                };
            }
            let Line { r#type, object } = serde_json::from_slice(&text).map_err(unreadable)?;
            let object = object.get();
            if r#type == "ERROR" {
                let status: Status = serde_json::from_str(object).map_err(unreadable)?;
                return Err(CallError::Refused(Box::new(status)));
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
#[path = "tests/read.rs"]
mod tests;
