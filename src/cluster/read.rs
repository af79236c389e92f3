//! Lists and watches a kind as JSON text.
//!
//! kube's own list parses all objects of a page before it returns the first one, and asks for the next page only after that. Here
//! the objects are parsed one after the other, while the next page is on its way (docs/decisions/0013).

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

/// Objects of the largest page of a list.
pub const MAX_PAGE_OBJECTS: u32 = 200;
/// Bytes of the largest page. The API server counts objects only, so a page with more bytes is asked for again with fewer
/// objects.
const MAX_PAGE_BYTES: usize = 4 << 20;
/// Bytes of the largest page with one object. etcd takes 1.5 MiB for an object, and its JSON may be several times as long.
const MAX_OBJECT_BYTES: usize = 16 << 20;
/// Pages in memory at the same time, of all kinds and namespaces. At a start they are what takes the most memory.
const MAX_PAGES_IN_MEMORY: usize = 16;
/// How long one page may take. The API server itself gives up after 60 s, and an earlier second try would only begin anew.
const PAGE_DEADLINE: Duration = Duration::from_secs(65);
/// Bytes of the largest event of a watch.
const MAX_EVENT_BYTES: u64 = 16 << 20;
/// Objects, and bytes of them, that are read before other tasks get their turn.
const MAX_READ_WITHOUT_YIELD: (usize, usize) = (32, 256 << 10);
/// How long a watch lasts, in seconds. Load balancers drop quiet connections after 240 s, so a watch ends before that.
pub const WATCH_SECONDS: u32 = 200;

/// The part of an object that says which object it is, whatever its kind.
#[derive(Debug, Deserialize)]
pub struct Head {
    /// The identifying part of `metadata`.
    pub metadata: HeadMeta,
}

/// The identifying part of an object's metadata.
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
    /// `null` in an empty list. JSON without this field is no list, and does not prove that there are no objects.
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

/// An event of a watch. Objects are JSON text.
pub enum Event<'a> {
    /// The server has accepted the request. From now on it sends changes.
    Begun,
    /// An object was created or changed.
    Applied(&'a str),
    /// An object was deleted.
    Deleted(Head),
}

/// A collection of the API: one kind, in all namespaces or in one.
#[derive(Clone)]
pub struct Source {
    client: Client,
    /// Path of the collection.
    url: String,
    labels: Option<String>,
    /// Objects of the first page of a list.
    first_page_objects: u32,
}

/// A place in memory for a page of a list.
type PagePermit = SemaphorePermit<'static>;

/// The places for pages. A page is asked for only when there is a place for it.
static PAGE_PERMITS: Semaphore = Semaphore::const_new(MAX_PAGES_IN_MEMORY);

async fn page_permit() -> Result<PagePermit, CallError> {
    PAGE_PERMITS.acquire().await.map_err(|closed| failed(kube::Error::Service(closed.into())))
}

/// The server's reply to a request for a page.
enum Reply {
    /// A page, with its place in memory.
    Page(Bytes, PagePermit),
    /// The page has too many bytes.
    TooLong,
}

/// The fields of an object in their order, each with its JSON text.
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
    /// The JSON text without `metadata.managedFields`, which are about half of it and are not used.
    fn without_managed_fields(&self) -> String {
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

    /// Appends the fields to `text`, without the one of this name. `value` appends the text of a field.
    fn write(&self, text: &mut String, without: &str, value: impl Fn(&mut String, &str, &str)) {
        text.push('{');
        for (Name(name), raw) in self.0.iter().filter(|(Name(name), _)| name != without) {
            if !text.ends_with('{') {
                text.push(',');
            }
            // A string can always be serialized.
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

/// Waits for the reply to a request for a page.
async fn reply_of(asked: &mut JoinSet<Result<Reply, CallError>>) -> Result<Reply, CallError> {
    match asked.join_next().await {
        Some(Ok(reply)) => reply,
        Some(Err(error)) => Err(failed(kube::Error::Service(error.into()))),
        None => Err(CallError::Deadline(PAGE_DEADLINE)),
    }
}

impl Source {
    /// The objects of the collection at `url` that these labels select. A list begins with a page of `first_page_objects`. Later
    /// pages grow as long as they stay small in bytes.
    #[must_use]
    pub fn new(client: Client, url: &str, labels: Option<&str>, first_page_objects: u32) -> Self {
        let labels = labels.map(str::to_owned);
        Self { client, url: url.to_owned(), labels, first_page_objects }
    }

    /// Asks for a page in a task of its own, so that it arrives while the caller does something else.
    fn ask(
        &self,
        token: &str,
        limit: u32,
        permit: PagePermit,
    ) -> JoinSet<Result<Reply, CallError>> {
        let params = ListParams {
            label_selector: self.labels.clone(),
            limit: Some(limit),
            continue_token: Some(token.to_owned()).filter(|token| !token.is_empty()),
            ..ListParams::default()
        };
        let most = if limit == 1 { MAX_OBJECT_BYTES } else { MAX_PAGE_BYTES };
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
                return Ok(Reply::Page(body, permit));
            }
            let refusal = serde_json::from_slice(&body).unwrap_or_else(|_| {
                let text = String::from_utf8_lossy(&body[..body.len().min(1024)]).into_owned();
                Status::failure(&text, "Failed to parse error data").with_code(status.as_u16())
            });
            Err(kube::Error::Api(Box::new(refusal)))
        }));
        task
    }

    /// Reads every object, and returns the resource version of the list. The list is consistent: an object that it does not show
    /// did not exist at that version.
    ///
    /// # Errors
    /// Those of the calls. An error of `each` ends the list.
    pub async fn list(
        &self,
        mut each: impl FnMut(&str) -> serde_json::Result<()>,
    ) -> Result<String, CallError> {
        let (mut token, mut limit) = (String::new(), self.first_page_objects);
        let mut asked = self.ask(&token, limit, page_permit().await?);
        loop {
            let Reply::Page(text, taken) = reply_of(&mut asked).await? else {
                limit = (limit / 4).max(1);
                asked = self.ask(&token, limit, page_permit().await?);
                continue;
            };
            let page: Page<'_> = serde_json::from_slice(&text).map_err(unreadable)?;
            let PageMeta { resource_version, r#continue } = page.metadata;
            if text.len() < MAX_PAGE_BYTES / 4 {
                limit = (2 * limit).min(MAX_PAGE_OBJECTS);
            }
            token = r#continue;
            let last = token.is_empty();
            // If there is a place for it, the next page arrives while this one is read.
            let permit = PAGE_PERMITS.try_acquire().ok().filter(|_| !last);
            let next = permit.map(|permit| self.ask(&token, limit, permit));
            let (mut objects, mut bytes) = (0, 0);
            for item in page.items.iter().flatten() {
                let text = item.without_managed_fields();
                (objects, bytes) = (objects + 1, bytes + text.len());
                each(&text).map_err(unreadable)?;
                drop(text);
                if objects >= MAX_READ_WITHOUT_YIELD.0 || bytes >= MAX_READ_WITHOUT_YIELD.1 {
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
                None => self.ask(&token, limit, page_permit().await?),
            };
        }
    }

    /// The resource version that the server is at now. It is read by a consistent list of one object.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn version(&self) -> Result<String, CallError> {
        let reply = reply_of(&mut self.ask("", 1, page_permit().await?)).await?;
        let Reply::Page(text, _permit) = reply else { return Err(no_version()) };
        let page: Page<'_> = serde_json::from_slice(&text).map_err(unreadable)?;
        let version = page.metadata.resource_version;
        if version.is_empty() { Err(no_version()) } else { Ok(version) }
    }

    /// Watches the changes after `version` until the server ends the watch. `version` moves with each event, so that the next
    /// watch can go on from there.
    ///
    /// # Errors
    /// Those of the call and of the stream, and the server's own (410: the version is too old). An error of `on` ends the watch.
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
        // The server ends the watch by itself. One that does not is not waited for.
        let deadline = Instant::now() + Duration::from_secs(WATCH_SECONDS.into()) + CALL_DEADLINE;
        let mut events = Box::pin(call(self.client.request_stream(request)).await?);
        on(Event::Begun).map_err(unreadable)?;
        let mut text = Vec::new();
        loop {
            text.clear();
            text.shrink_to(64 << 10);
            let mut line = (&mut events).take(MAX_EVENT_BYTES);
            match timeout_at(deadline, line.read_until(b'\n', &mut text)).await {
                Err(_) => return Ok(()),
                Ok(Err(error)) => return Err(failed(kube::Error::ReadEvents(error))),
                Ok(Ok(_)) => {}
            }
            // The stream has ended, perhaps in the middle of an event.
            if text.last() != Some(&b'\n') {
                return if text.len() as u64 == MAX_EVENT_BYTES {
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
                    on(Event::Applied(&fields.without_managed_fields()))
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
