//! Pushes an image: its blobs, then its manifest under each tag. Or a note: a manifest that names no blobs of an image.
//!
//! A blob is sent while it is read. Its last bytes leave only when its digest is right, so a registry never gets the whole of a wrong one.

use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Method, Request, StatusCode, Url};
use tokio::sync::mpsc;

use super::client::{Answer, Registry, answer, failed, unreachable};
use super::error::{LayoutError, PushError, RegistryError, shown};
use super::image::Tag;
use super::layout::{Blob, CHUNK, Layout};
use super::manifest::{Descriptor, Digest, EMPTY, MANIFEST};
use crate::net::NetError;

/// How long nothing of a blob may move. Registries take their time with the last part, when they copy it.
pub(super) const MAX_STILL: Duration = Duration::from_secs(180);
/// Pieces of a blob that wait to be sent.
const PIECES: usize = 2;
/// The header with the digest of what was stored.
const CONTENT_DIGEST: &str = "docker-content-digest";

/// What became of the layers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pushed {
    /// How many layers the image has.
    pub layers: usize,
    /// How many of them the registry had already.
    pub there: usize,
}

impl Registry {
    /// Pushes config and layers. What the registry has is read and checked, but not sent again.
    ///
    /// # Errors
    /// Why the registry does not have all of them.
    pub async fn push_blobs(&mut self, layout: &Layout) -> Result<Pushed, PushError> {
        let mut pushed = Pushed { layers: layout.layers.len(), there: 0 };
        let mut sent = BTreeSet::new();
        for layer in &layout.layers {
            if !sent.insert(layer.digest.hex()) || self.push_blob(layer).await? {
                pushed.there += 1;
            }
        }
        if !sent.contains(layout.config.digest.hex()) {
            self.push_blob(&layout.config).await?;
        }
        Ok(pushed)
    }

    /// Pushes the manifest under a tag. All blobs must be there.
    ///
    /// # Errors
    /// Why the registry does not have it.
    pub async fn push_manifest(&mut self, layout: &Layout, tag: &Tag) -> Result<(), PushError> {
        self.put_manifest(&layout.manifest, &layout.digest, tag.as_str(), MANIFEST).await?;
        Ok(())
    }

    /// Pushes a manifest that names only the blob `{}`, and that blob.
    ///
    /// # Errors
    /// Why the registry does not have it.
    pub async fn push_note(&mut self, manifest: &[u8], tag: &Tag) -> Result<(), RegistryError> {
        self.push_empty().await?;
        self.put_manifest(manifest, &Digest::of(manifest), tag.as_str(), MANIFEST).await?;
        Ok(())
    }

    /// Pushes the blob `{}`, if it is not there.
    pub(super) async fn push_empty(&mut self) -> Result<(), RegistryError> {
        let digest = Digest::of(EMPTY);
        let what = format!("cannot push {digest} of {}", self.image());
        if !self.has_blob(&what, &digest).await? {
            let url = self.begin(&what).await?;
            let named = Descriptor { digest, size: EMPTY.len() as u64 };
            let make = || {
                let mut request = blob_request(url.clone(), &named);
                *request.body_mut() = Some(EMPTY.into());
                request
            };
            let answer = self.send(&what, make).await?;
            if !answer.status.is_success() {
                return Err(self.refused(&what, &answer));
            }
        }
        Ok(())
    }

    /// Puts a manifest or an index under a tag or its digest.
    pub(super) async fn put_manifest(
        &mut self,
        manifest: &[u8],
        digest: &Digest,
        version: &str,
        media_type: &'static str,
    ) -> Result<Answer, RegistryError> {
        let between = if version.contains(':') { '@' } else { ':' };
        let what = format!("cannot push {}{between}{version}", self.image());
        let url = self.url(&format!("manifests/{version}"))?;
        let make = || {
            let mut request = Request::new(Method::PUT, url.clone());
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
            *request.body_mut() = Some(manifest.to_vec().into());
            request
        };
        let answer = self.tried(&what, make, StatusCode::is_success).await?;
        let stored = answer.headers.get(CONTENT_DIGEST).and_then(|value| value.to_str().ok());
        let wanted = digest.to_string();
        if let Some(stored) = stored.filter(|stored| *stored != wanted) {
            let why = format!("the registry has stored {}, and not {wanted}", shown(stored));
            return Err(RegistryError::NotUsed { what, why });
        }
        Ok(answer)
    }

    /// Sends a request until the answer is good, or will not be.
    pub(super) async fn tried(
        &mut self,
        what: &str,
        make: impl Fn() -> Request,
        is_good: impl Fn(&StatusCode) -> bool,
    ) -> Result<Answer, RegistryError> {
        let mut tried = 0;
        loop {
            let error = match self.send(what, &make).await {
                Ok(answer) if is_good(&answer.status) => return Ok(answer),
                Ok(answer) => self.refused(what, &answer),
                Err(error) => error,
            };
            if !self.again(&mut tried, &error).await {
                return Err(error);
            }
        }
    }

    /// Whether the registry has a blob of the image.
    pub(super) async fn has_blob(
        &mut self,
        what: &str,
        digest: &Digest,
    ) -> Result<bool, RegistryError> {
        let url = self.url(&format!("blobs/{digest}"))?;
        let make = || Request::new(Method::HEAD, url.clone());
        // A redirect leads to where the registry keeps it.
        let has = |status: &StatusCode| {
            status.is_success()
                || matches!(*status, StatusCode::FOUND | StatusCode::TEMPORARY_REDIRECT)
        };
        let good = |status: &StatusCode| has(status) || *status == StatusCode::NOT_FOUND;
        let answer = self.tried(what, make, good).await?;
        Ok(has(&answer.status))
    }

    /// Pushes one blob. Returns whether the registry had it.
    pub(super) async fn push_blob(&mut self, blob: &Blob) -> Result<bool, PushError> {
        let what = format!("cannot push {} of {}", blob.digest, self.image());
        let is_there = self.has_blob(&what, &blob.digest).await?;
        // One that is sent in one piece is known to be right before anything of it leaves.
        if is_there || blob.size <= CHUNK {
            checked(blob).await?;
        }
        if is_there {
            return Ok(true);
        }
        let mut tried = 0;
        loop {
            match self.upload(&what, blob).await {
                Ok(()) => return Ok(false),
                Err(PushError::Registry(error)) if self.again(&mut tried, &error).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins an upload, and sends a blob.
    async fn upload(&mut self, what: &str, blob: &Blob) -> Result<(), PushError> {
        let place = self.begin(what).await?;
        let named = Descriptor { digest: blob.digest.clone(), size: blob.size };
        self.finish(what, place, &named, Pieces::of(blob.clone())).await
    }

    /// Begins an upload. Gives its URL.
    pub(super) async fn begin(&mut self, what: &str) -> Result<Url, RegistryError> {
        let start = self.url("blobs/uploads/")?;
        let begun = self.send(what, || posted(&start)).await?;
        if begun.status != StatusCode::ACCEPTED {
            return Err(self.refused(what, &begun));
        }
        self.place(what, &start, &begun)
    }

    /// The URL of an upload that has begun.
    pub(super) fn place(
        &self,
        what: &str,
        start: &Url,
        begun: &Answer,
    ) -> Result<Url, RegistryError> {
        let place = begun.headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let none = || RegistryError::NotUsed {
            what: what.to_owned(),
            why: "the registry names no place for the upload".into(),
        };
        self.given(what, start, place.ok_or_else(none)?)
    }

    /// Sends a blob to the URL of its upload. The registry checks the digest as well.
    pub(super) async fn finish(
        &mut self,
        what: &str,
        url: Url,
        named: &Descriptor,
        (body, state): (Pieces, Arc<State>),
    ) -> Result<(), PushError> {
        let mut request = blob_request(url, named);
        *request.body_mut() = Some(reqwest::Body::wrap(body));
        let (client, request) = self.prepared(request);
        let sending = async { answer(client.execute(request).await?).await };
        let sent = self.within(what, Duration::MAX, moving(sending, &state.moved)).await;
        // A blob that is wrong ends the request. What the registry says of that does not matter.
        if let Some(wrong) = state.wrong.lock().take() {
            return Err(wrong);
        }
        let answer = sent?.map_err(|error| match error {
            Some(error) => failed(what, error),
            None => unreachable(what, format!("nothing moves for {} seconds", MAX_STILL.as_secs())),
        })?;
        if answer.status.is_success() { Ok(()) } else { Err(self.refused(what, &answer).into()) }
    }
}

/// The request that sends a blob to the URL of its upload, without its body.
fn blob_request(mut url: Url, named: &Descriptor) -> Request {
    url.query_pairs_mut().append_pair("digest", &named.digest.to_string());
    let mut request = Request::new(Method::PUT, url);
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(named.size));
    request
}

/// A request that begins an upload.
pub(super) fn posted(url: &Url) -> Request {
    let mut request = Request::new(Method::POST, url.clone());
    request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    request
}

/// Reads a blob that is not sent, and checks its digest.
async fn checked(blob: &Blob) -> Result<(), PushError> {
    let (blob, path) = (blob.clone(), blob.path());
    let reading = tokio::task::spawn_blocking(move || blob.read(|_| true));
    let ended = |_| LayoutError::NotRead { path, why: "the reading ended".into() };
    Ok(reading.await.map_err(ended)??)
}

/// Waits for an answer as long as something moves. `Err(None)`: nothing did.
async fn moving<T>(
    sending: impl Future<Output = Result<T, NetError>>,
    moved: &AtomicU64,
) -> Result<Result<T, Option<NetError>>, NetError> {
    tokio::pin!(sending);
    let mut seen = 0;
    loop {
        tokio::select! {
            done = &mut sending => return Ok(done.map_err(Some)),
            () = tokio::time::sleep(MAX_STILL) => {
                let now = moved.load(Ordering::Relaxed);
                if now == seen {
                    return Ok(Err(None));
                }
                seen = now;
            }
        }
    }
}

/// A part of a blob.
pub(super) type Piece = Result<Bytes, io::Error>;

/// The body of a request: a blob, while it is read.
pub(super) struct Pieces {
    waiting: mpsc::Receiver<Piece>,
    left: u64,
    state: Arc<State>,
}

/// What is known of a blob that is being sent.
#[derive(Default)]
pub(super) struct State {
    /// Pieces that were sent.
    moved: AtomicU64,
    /// What is wrong with it.
    pub(super) wrong: Mutex<Option<PushError>>,
}

impl Pieces {
    /// Those that somebody sends: so many bytes.
    pub(super) fn sent_by(size: u64) -> (mpsc::Sender<Piece>, Self, Arc<State>) {
        let (sender, waiting) = mpsc::channel(PIECES);
        let state = Arc::new(State::default());
        (sender, Self { waiting, left: size, state: state.clone() }, state)
    }

    /// Begins to read a blob.
    fn of(blob: Blob) -> (Self, Arc<State>) {
        let (sender, pieces, state) = Self::sent_by(blob.size);
        let known = state.clone();
        tokio::task::spawn_blocking(move || {
            if let Err(wrong) = blob.read(|piece| sender.blocking_send(Ok(piece)).is_ok()) {
                *known.wrong.lock() = Some(wrong.into());
                let _ = sender.blocking_send(Err(io::Error::other("the blob is wrong")));
            }
        });
        (pieces, state)
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        self.waiting.poll_recv(context).map(|next| match next {
            Some(Ok(piece)) => {
                self.left = self.left.saturating_sub(piece.len() as u64);
                self.state.moved.fetch_add(1, Ordering::Relaxed);
                Some(Ok(Frame::data(piece)))
            }
            Some(Err(error)) => Some(Err(error)),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn b5_a_blob_is_given_up_when_nothing_of_it_moves() {
        let moved = AtomicU64::new(0);
        let began = tokio::time::Instant::now();
        let still = moving(std::future::pending::<Result<(), NetError>>(), &moved).await;
        assert_eq!((still, began.elapsed()), (Ok(Err(None)), MAX_STILL));
        // A slow one has all the time that it takes.
        let slow = async {
            for _ in 0..50 {
                tokio::time::sleep(MAX_STILL / 2).await;
                moved.fetch_add(1, Ordering::Relaxed);
            }
            Ok(7)
        };
        assert_eq!(moving(slow, &moved).await, Ok(Ok(7)));
    }
}
