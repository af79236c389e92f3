//! Pulls from a registry: manifests, small blobs, and blobs that go on to another registry while they arrive.
//!
//! Registries send their clients on to where they keep blobs. That is followed without credentials, and only over https, or if the registry
//! itself is asked over plain HTTP. Nothing that arrives counts before its digest is right.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::{ACCEPT, HeaderValue, LOCATION};
use reqwest::{Method, Request, Response, StatusCode, Url};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::base::ACCEPTED;
use super::client::{Registry, TIMEOUT, failed, unreachable};
use super::error::{BaseError, PushError, RegistryError, shown};
use super::image::Image;
use super::manifest::{Descriptor, Digest, MAX_MANIFEST};
use super::push::{MAX_STILL, Piece, Pieces, State, posted};
use crate::net::NetError;

/// How often a blob may be somewhere else.
const MAX_REDIRECTS: usize = 3;

/// How a blob came to a registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// It was there.
    There,
    /// The registry has it in another image, and took it over by itself.
    Mounted,
    /// It was sent.
    Sent,
}

impl Registry {
    /// A manifest or an index, and its digest. `version` is a tag or a digest.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn pull_manifest(
        &mut self,
        version: &str,
    ) -> Result<(Vec<u8>, Digest), BaseError> {
        let what = format!("cannot pull {} {}", self.image(), shown(version));
        let url = self.url(&format!("manifests/{version}")).map_err(BaseError::Registry)?;
        let accepted = HeaderValue::from_str(&ACCEPTED.join(", "))
            .unwrap_or_else(|_| HeaderValue::from_static("*/*"));
        let make = || {
            let mut request = Request::new(Method::GET, url.clone());
            request.headers_mut().insert(ACCEPT, accepted.clone());
            request
        };
        let bytes = self.pull_small(&what, make, MAX_MANIFEST).await?;
        let digest = Digest::of(&bytes);
        if version.starts_with("sha256:") && digest.to_string() != version {
            return Err(self.invalid(format!("its registry gives {digest} for {version}")));
        }
        Ok((bytes, digest))
    }

    /// A small blob.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn pull_blob(&mut self, named: &Descriptor) -> Result<Vec<u8>, BaseError> {
        let Descriptor { digest, size } = named;
        let what = format!("cannot pull {digest} of {}", self.image());
        let url = self.url(&format!("blobs/{digest}")).map_err(BaseError::Registry)?;
        let make = || Request::new(Method::GET, url.clone());
        let bytes = self.pull_small(&what, make, *size).await?;
        if Digest::of(&bytes) != *digest {
            return Err(self.invalid(format!("its registry gives something else for {digest}")));
        }
        Ok(bytes)
    }

    fn invalid(&self, why: String) -> BaseError {
        BaseError::Invalid { image: self.image().to_string(), why }
    }

    /// The body of an answer, with at most `limit` bytes.
    async fn pull_small(
        &mut self,
        what: &str,
        make: impl Fn() -> Request,
        limit: u64,
    ) -> Result<Vec<u8>, BaseError> {
        let mut tried = 0;
        loop {
            let error = match self.pull_once(what, &make, limit).await {
                Ok(Some(bytes)) => return Ok(bytes),
                Ok(None) => {
                    let why = format!("{what}: it has more than {limit} bytes");
                    return Err(self.invalid(why));
                }
                Err(error) => error,
            };
            if !self.again(&mut tried, &error).await {
                return Err(BaseError::Registry(error));
            }
        }
    }

    /// `None` when there is more than `limit`.
    async fn pull_once(
        &mut self,
        what: &str,
        make: impl Fn() -> Request,
        limit: u64,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        let mut response = self.follow(what, make).await?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let reading = async {
            let mut bytes = Vec::new();
            while let Some(piece) = response.chunk().await? {
                if piece.len() > limit - bytes.len() {
                    return Ok(None);
                }
                bytes.extend_from_slice(&piece);
            }
            Ok::<_, NetError>(Some(bytes))
        };
        self.within(what, TIMEOUT, reading).await
    }

    /// Sends a request that changes nothing, and goes where the registry sends it on to.
    async fn follow(
        &mut self,
        what: &str,
        make: impl Fn() -> Request,
    ) -> Result<Response, RegistryError> {
        let mut at = make().url().clone();
        let mut response = self.open(what, &make).await?;
        for _ in 0..MAX_REDIRECTS {
            if response.status().is_success() {
                return Ok(response);
            }
            at = self.next(what, &at, &response)?;
            response = self.elsewhere(what, Request::new(Method::GET, at.clone())).await?;
            let status = response.status();
            if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
                let place = shown(&at.origin().ascii_serialization());
                return Err(unreachable(what, format!("{place} answers HTTP {}", status.as_u16())));
            }
            if !status.is_success() && !status.is_redirection() {
                let place = shown(&at.origin().ascii_serialization());
                let said = format!(" ({place}, to which the registry sends the client on)");
                let (what, status) = (what.to_owned(), status.as_u16());
                return Err(RegistryError::Refused { what, status, said });
            }
        }
        if response.status().is_success() {
            return Ok(response);
        }
        let why = format!("the registry sends the client on more than {MAX_REDIRECTS} times");
        Err(RegistryError::NotUsed { what: what.to_owned(), why })
    }

    /// Where an answer sends the client on to.
    fn next(&self, what: &str, from: &Url, response: &Response) -> Result<Url, RegistryError> {
        let not_used = |why: String| RegistryError::NotUsed { what: what.to_owned(), why };
        let place = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let to = place.and_then(|place| from.join(place).ok());
        let to = to.ok_or_else(|| not_used("the registry names no place for it".into()))?;
        let is_safe = to.scheme() == "https" || (to.scheme() == "http" && self.is_plain_http());
        if !is_safe || !to.username().is_empty() || to.password().is_some() {
            let place = shown(&to.origin().ascii_serialization());
            return Err(not_used(format!("the registry sends the client on to {place}")));
        }
        Ok(to)
    }

    /// Brings a blob from another image here. `is_near`: that image is in the same registry.
    ///
    /// # Errors
    /// Why the registry does not have it.
    pub(super) async fn copy_blob(
        &mut self,
        base: &mut Self,
        is_near: bool,
        named: &Descriptor,
    ) -> Result<Copied, PushError> {
        let what = format!("cannot push {} of {}", named.digest, self.image());
        let mut place = None;
        if is_near && base.image() != self.image() {
            match self.mount(&what, &named.digest, &base.image().clone()).await? {
                Mount::Done => return Ok(Copied::Mounted),
                Mount::Upload(url) => place = Some(url),
                Mount::No => {}
            }
        }
        if self.has_blob(&what, &named.digest).await? {
            return Ok(Copied::There);
        }
        let mut tried = 0;
        loop {
            match self.send_on(&what, base, named, place.take()).await {
                Ok(()) => return Ok(Copied::Sent),
                Err(PushError::Registry(error) | PushError::Base(BaseError::Registry(error)))
                    if self.again(&mut tried, &error).await => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Asks the registry to take over a blob of another of its images.
    async fn mount(
        &mut self,
        what: &str,
        digest: &Digest,
        from: &Image,
    ) -> Result<Mount, RegistryError> {
        let start = self.url("blobs/uploads/")?;
        let mut asked = start.clone();
        asked
            .query_pairs_mut()
            .append_pair("mount", &digest.to_string())
            .append_pair("from", from.name());
        // A registry that knows nothing of it may say anything.
        let good = |status: &StatusCode| status.is_success() || status.is_client_error();
        let answer = self.tried(what, || posted(&asked), good).await?;
        Ok(match answer.status {
            StatusCode::CREATED => Mount::Done,
            StatusCode::ACCEPTED => Mount::Upload(self.place(what, &start, &answer)?),
            _ => Mount::No,
        })
    }

    /// Sends a blob while it arrives.
    async fn send_on(
        &mut self,
        what: &str,
        base: &mut Self,
        named: &Descriptor,
        place: Option<Url>,
    ) -> Result<(), PushError> {
        let arriving = base.arriving(named).await?;
        let place = match place {
            Some(place) => place,
            None => self.begin(what).await?,
        };
        let (sender, pieces, state) = Pieces::sent_by(named.size);
        let pump = tokio::spawn(arriving.pump(sender, state.clone()));
        let sent = self.finish(what, place, named, (pieces, state)).await;
        pump.abort();
        sent
    }
}

impl Registry {
    /// Asks for a blob. Gives it before it is here.
    pub(super) async fn arriving(&mut self, named: &Descriptor) -> Result<Arriving, BaseError> {
        let what = format!("cannot pull {} of {}", named.digest, self.image());
        let url = self.url(&format!("blobs/{}", named.digest)).map_err(BaseError::Registry)?;
        let make = || Request::new(Method::GET, url.clone());
        let response = self.follow(&what, make).await.map_err(BaseError::Registry)?;
        Ok(Arriving { what, image: self.image().to_string(), named: named.clone(), response })
    }
}

/// What a registry answers to a mount.
enum Mount {
    /// It has the blob.
    Done,
    /// It wants the blob, and this is the URL of the upload.
    Upload(Url),
    /// It does not mount.
    No,
}

/// A blob that arrives.
pub(super) struct Arriving {
    /// What errors call it.
    pub what: String,
    image: String,
    named: Descriptor,
    response: Response,
}

impl Arriving {
    /// Gives on what arrives.
    async fn pump(self, sender: mpsc::Sender<Piece>, state: Arc<State>) {
        if let Err(wrong) = self.pieces(&sender).await {
            *state.wrong.lock() = Some(wrong.into());
            let _ = sender.send(Err(io::Error::other("the blob is wrong"))).await;
        }
    }

    /// The last piece is given on only when the digest of all is right.
    pub(super) async fn pieces(mut self, sender: &mpsc::Sender<Piece>) -> Result<(), BaseError> {
        let mut hash = Sha256::new();
        let mut size = 0;
        let mut kept: Option<Bytes> = None;
        loop {
            let next = tokio::time::timeout(MAX_STILL, self.response.chunk());
            let still = |_| format!("nothing moves for {} seconds", MAX_STILL.as_secs());
            let piece = match next.await.map_err(still) {
                Err(why) => return Err(BaseError::Registry(unreachable(&self.what, why))),
                Ok(Err(error)) => {
                    return Err(BaseError::Registry(failed(&self.what, NetError::from(error))));
                }
                Ok(Ok(piece)) => piece,
            };
            let Some(piece) = piece.filter(|piece| !piece.is_empty()) else { break };
            hash.update(&piece);
            size += piece.len() as u64;
            if size > self.named.size {
                break;
            }
            if let Some(before) = kept.replace(piece)
                && sender.send(Ok(before)).await.is_err()
            {
                // Nobody wants it any more, and says why.
                return Ok(());
            }
        }
        let (wanted, digest) = (self.named.size, Digest::of_hash(hash));
        if size < wanted {
            let why = format!("it breaks off after {size} of {wanted} bytes");
            return Err(BaseError::Registry(unreachable(&self.what, why)));
        }
        if size > wanted || digest != self.named.digest {
            let why = format!("its registry gives something else for {}", self.named.digest);
            return Err(BaseError::Invalid { image: self.image, why });
        }
        if let Some(last) = kept {
            let _ = sender.send(Ok(last)).await;
        }
        Ok(())
    }
}
