//! `convoke append-image`: appends a folder to a base image as one layer, and pushes the image, or writes it as an OCI image layout. Steps of
//! builds run it (`strategy: Append`).
//!
//! It runs nothing of the folder, and needs no rights but those of a process that reads files. The folder is hostile: regular files and links
//! that stay in it are taken, and nothing else.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;

use super::connection::block_on;
use super::push_image::{Access, FOLDER, TOTAL, client, credentials, failure, policy, results};
use super::{Failure, USAGE, print};
use crate::net::Dialler;
use crate::registry::append::{Append, Appended};
use crate::registry::base::{Change, Platform};
use crate::registry::client::Options;
use crate::registry::folder::Layer;
use crate::registry::packages::Packages;
use crate::registry::pull::Copied;
use crate::registry::{Credentials, Image, PushError, Reference, Registry, RegistryError, Tag};

/// Append a folder to a base image.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Folder that holds the folder; from here on no symbolic link is followed
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// The folder to append, relative to --root
    #[arg(long, value_name = "PATH", default_value = ".")]
    subfolder: String,
    /// The base image
    #[arg(long, value_name = "NAME:TAG")]
    base: Reference,
    /// Where the folder is in the image; it becomes the working directory
    #[arg(long, value_name = "PATH", value_parser = absolute, default_value = "/app")]
    into: String,
    /// As whom the image runs; empty means as the base image says
    #[arg(long, value_name = "USER", default_value = "", hide_default_value = true)]
    user: String,
    /// Which image of a base image for several platforms; empty: that of this machine
    #[arg(long, value_name = "linux/ARCHITECTURE", value_parser = platform, default_value = "", hide_default_value = true)]
    platform: Wanted,
    /// The lock file whose packages --dependencies has; empty: no packages are appended
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    lock_file: String,
    /// Folder with installed packages: they become a layer below that of the folder
    #[arg(long, value_name = "DIR")]
    dependencies: Option<PathBuf>,
    /// Where the packages are in the image
    #[arg(long, value_name = "PATH", value_parser = absolute, default_value = "/opt/dependencies")]
    dependencies_into: String,
    /// Write the image as an OCI image layout into this folder, which must not be there, and push nothing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["tags", "url_file"])]
    layout: Option<PathBuf>,
    /// Where to push the image, without a tag; with --layout only for --auth and --insecure: which registry is the one of the image
    #[arg(long, value_name = "HOST[:PORT]/NAME", required_unless_present = "layout")]
    image: Option<Image>,
    /// A tag to give it; may be given several times
    #[arg(long = "tag", value_name = "TAG", required_unless_present = "layout")]
    tags: Vec<Tag>,
    #[command(flatten)]
    access: Access,
    /// File that gets the image with its last tag
    #[arg(long, value_name = "FILE")]
    url_file: Option<PathBuf>,
    /// File that gets the digest of the manifest
    #[arg(long, value_name = "FILE")]
    digest_file: Option<PathBuf>,
    /// Folder for a file without a name
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// File that gets the digest of the base image
    #[arg(long, value_name = "FILE")]
    base_digest_file: Option<PathBuf>,
    /// What the image runs; default: what the base image runs
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// A platform, or that of this machine.
#[derive(Debug, Clone)]
struct Wanted(Option<Platform>);

fn platform(text: &str) -> Result<Wanted, String> {
    if text.is_empty() { Ok(Wanted(None)) } else { text.parse().map(|it| Wanted(Some(it))) }
}

/// The packages of the lock file.
fn packages(args: &Args) -> Result<Option<Packages>, Failure> {
    let Args { lock_file, dependencies: folder, dependencies_into: into, .. } = args;
    if lock_file.is_empty() {
        return Ok(None);
    }
    let is_there = |folder: &&PathBuf| folder.symlink_metadata().is_ok_and(|it| it.is_dir());
    let Some(folder) = folder.as_ref().filter(is_there) else {
        let why = format!(
            "no step has installed the packages of {lock_file}: there is no folder with them"
        );
        return Err(Failure::new(FOLDER, why));
    };
    Ok(Some(Packages { folder: folder.clone(), into: into.clone() }))
}

/// A folder in an image.
fn absolute(text: &str) -> Result<String, String> {
    let mut parts = text.split('/');
    let is_absolute = parts.next() == Some("");
    if is_absolute && text.len() > 1 && parts.all(|part| !matches!(part, "" | "." | "..")) {
        Ok(text.to_owned())
    } else {
        Err("it must be an absolute path, without \".\" and \"..\"".into())
    }
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    if args.access.insecure && args.image.is_none() {
        let why = "--insecure true needs --image: only the registry of the image is asked over plain HTTP";
        return Err(Failure::new(USAGE, why.to_owned()));
    }
    block_on(append(args))
}

async fn append(args: &Args) -> Result<ExitCode, Failure> {
    let mut base = base(args).map_err(|error| failure(&error.into()))?;
    let packages = packages(args)?;
    let append = Append {
        reference: args.base.clone(),
        platform: args.platform.0.clone().unwrap_or_else(Platform::here),
        packages,
        root: args.root.clone(),
        subfolder: args.subfolder.clone(),
        scratch: args.scratch.clone().unwrap_or_else(std::env::temp_dir),
        change: Change {
            into: args.into.clone(),
            command: args.command.clone(),
            user: Some(args.user.clone()).filter(|user| !user.is_empty()),
        },
    };
    match (&args.layout, &args.image) {
        (Some(folder), _) => {
            let appended = append.save(&mut base, folder).await.map_err(|error| failure(&error))?;
            told(args, &appended)?;
            let (digest, layers) =
                (&appended.layout.digest, appended.below + appended.layout.layers.len());
            let layers = super::count(layers, "layer");
            print(&format!("wrote {}, {digest}, {layers}\n", folder.display()))?;
            results(&[
                (&args.digest_file, &digest.to_string()),
                (&args.base_digest_file, &appended.base.to_string()),
            ])
        }
        (None, Some(image)) => push(args, &append, &mut base, image).await,
        (None, None) => Err(Failure::new(USAGE, "--image or --layout is needed".to_owned())),
    }
}

/// Appends, and pushes the image.
async fn push(
    args: &Args,
    append: &Append,
    base: &mut Registry,
    image: &Image,
) -> Result<ExitCode, Failure> {
    let failed = |error: PushError| failure(&error);
    let mut registry = client(image, &args.access).map_err(|error| failed(error.into()))?;
    let (appended, copied) = append.run(base, &mut registry).await.map_err(failed)?;
    let layout = &appended.layout;
    registry.push_blobs(layout).await.map_err(failed)?;
    told(args, &appended)?;
    let how = |how| copied.iter().filter(|one| **one == how).count();
    let [there, mounted, sent] = [Copied::There, Copied::Mounted, Copied::Sent].map(how);
    print(&format!("layers of the base image: {there} there, {mounted} mounted, {sent} copied\n"))?;
    let mut last = String::new();
    for tag in &args.tags {
        registry.push_manifest(layout, tag).await.map_err(failed)?;
        last = format!("{image}:{tag}");
        print(&format!("pushed {last}, {}\n", layout.digest))?;
    }
    results(&[
        (&args.url_file, &last),
        (&args.digest_file, &layout.digest.to_string()),
        (&args.base_digest_file, &appended.base.to_string()),
    ])
}

/// Says what was appended to what.
fn told(args: &Args, appended: &Appended) -> Result<ExitCode, Failure> {
    let Appended { base, entries, packages, .. } = appended;
    if let Some(Layer { blob, entries, .. }) = packages {
        let (lock, digest) = (&args.lock_file, &blob.digest);
        print(&format!("the packages of {lock}: {entries} files and folders ({digest})\n"))?;
    }
    print(&format!("appended {entries} files and folders to {} ({base})\n", args.base))
}

/// The client of the base image.
fn base(args: &Args) -> Result<Registry, RegistryError> {
    let Access { auth, insecure } = &args.access;
    let image = &args.base.image;
    let is_near = args.image.as_ref().is_some_and(|other| image.is_beside(other));
    let found = credentials(auth, image)?;
    // An authority is for the registries that the credentials are for.
    let is_known = is_near || !found.login.is_anonymous();
    let credentials = if is_known { found } else { Credentials::default() };
    let options = Options { plain_http: *insecure && is_near, credentials, total: TOTAL };
    Ok(Registry::new(Dialler::new(policy()), image.clone(), options)?.read_only())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b11_a_folder_of_an_image_is_absolute() {
        for text in ["/app", "/opt/a.b/c-d"] {
            assert_eq!(absolute(text).as_deref(), Ok(text));
        }
        for text in ["", "/", "app", "/app/", "/a//b", "/a/../b", "/./a"] {
            assert!(absolute(text).is_err(), "{text}");
        }
    }
}
