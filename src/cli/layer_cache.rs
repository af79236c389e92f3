//! `convoke push-layers` and `convoke fetch-layers`: keep the layers that a build has made in the registry, and fetch them for the next build.
//! Steps of builds run them (`spec.layerCache`).
//!
//! A cache that cannot be had or kept makes a build slower, and fails none: both end with exit code 0, and say why there is none. Only wrong
//! usage is an error. What a build has left is hostile, as for `push-image`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args as ClapArgs;

use super::connection::block_on;
use super::push_image::{Access, credentials, failure, policy, results};
use super::{Failure, count, print};
use crate::net::Dialler;
use crate::registry::cache::Made;
use crate::registry::client::Options;
use crate::registry::{Digest, Image, Layout, PushError, Registry, Tag};

/// How long keeping, and how long fetching may take. It should save time.
const TOTAL: Duration = Duration::from_secs(300);
/// What the file with the digest has when there is none: results of Tekton should not be empty.
const NONE: &str = "none";

/// Keep layers.
#[derive(Debug, ClapArgs)]
pub struct Push {
    /// Folder that the step that builds has left
    #[arg(long, value_name = "DIR")]
    layers: PathBuf,
    /// Folder with the OCI image layout of the image that was built
    #[arg(long, value_name = "DIR")]
    layout: PathBuf,
    /// The image, without a tag
    #[arg(long, value_name = "HOST[:PORT]/NAME")]
    image: Image,
    /// The tag under which they are kept
    #[arg(long, value_name = "TAG")]
    tag: Tag,
    #[command(flatten)]
    access: Access,
    /// File that gets the digest of what is kept, or "none"
    #[arg(long, value_name = "FILE")]
    digest_file: Option<PathBuf>,
}

/// Fetch layers.
#[derive(Debug, ClapArgs)]
pub struct Fetch {
    /// Folder for the layers, which must not be there
    #[arg(long, value_name = "DIR")]
    layers: PathBuf,
    /// The image, without a tag
    #[arg(long, value_name = "HOST[:PORT]/NAME")]
    image: Image,
    /// The digest of what was kept; empty: there is none
    #[arg(long, value_name = "DIGEST", value_parser = digest, default_value = "", hide_default_value = true)]
    digest: Wanted,
    #[command(flatten)]
    access: Access,
}

/// A digest, or none.
#[derive(Debug, Clone)]
struct Wanted(Option<Digest>);

fn digest(text: &str) -> Result<Wanted, String> {
    if text.is_empty() { Ok(Wanted(None)) } else { text.parse().map(|it| Wanted(Some(it))) }
}

fn client(image: &Image, access: &Access) -> Result<Registry, PushError> {
    let credentials = credentials(&access.auth, image)?;
    let options = Options { plain_http: access.insecure, credentials, total: TOTAL };
    Ok(Registry::new(Dialler::new(policy()), image.clone(), options)?)
}

pub fn push(args: Push) -> Result<ExitCode, Failure> {
    block_on(async move {
        let digest = match kept(&args).await {
            Ok(digest) => digest,
            Err(error) => {
                print(&format!("no layers are kept: {}\n", said(&error)))?;
                NONE.to_owned()
            }
        };
        results(&[(&args.digest_file, &digest)])
    })
}

async fn kept(args: &Push) -> Result<String, PushError> {
    let image = Layout::open(&args.layout)?;
    let made = Made::open(&args.layers, &image)?;
    let mut registry = client(&args.image, &args.access)?;
    let (digest, kept) = registry.keep_layers(&made, &args.tag).await?;
    let (images, bytes) = (count(kept.images, "image"), kept.bytes >> 20);
    let left = match made.left_out {
        0 => String::new(),
        left => format!("; {} left out", count(left, "image")),
    };
    let text = format!("kept {}:{}, {digest}, {images}, {bytes} MiB{left}\n", args.image, args.tag);
    // Nobody has to read it.
    let _ = print(&text);
    Ok(digest.to_string())
}

pub fn fetch(args: Fetch) -> Result<ExitCode, Failure> {
    block_on(async move {
        let Wanted(Some(digest)) = &args.digest else {
            return print("no build has kept layers for this one\n");
        };
        let fetched = async {
            let mut registry = client(&args.image, &args.access)?.read_only();
            registry.fetch_layers(digest, &args.layers).await
        };
        match fetched.await {
            Ok(kept) => {
                let (images, bytes) = (count(kept.images, "image"), kept.bytes >> 20);
                print(&format!("fetched {digest}, {images}, {bytes} MiB\n"))
            }
            Err(error) => print(&format!("no layers are taken: {}\n", said(&error))),
        }
    })
}

/// Why, printable. It may quote a server.
fn said(error: &PushError) -> String {
    convoke_core::text::printable(&failure(error).message)
}
