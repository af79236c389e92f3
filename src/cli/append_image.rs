//! `convoke append-image`: appends a folder to a base image as one layer, and pushes the image. A step of builds runs it (`strategy: Append`).
//!
//! It runs nothing of the folder, and needs no rights but those of a process that reads files. The folder is hostile: regular files and links
//! that stay in it are taken, and nothing else.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;

use super::connection::block_on;
use super::push_image::{Destination, FOLDER, TOTAL, credentials, failure, policy, results};
use super::{Failure, print};
use crate::net::Dialler;
use crate::registry::append::{Append, Appended};
use crate::registry::base::{Change, Platform};
use crate::registry::client::Options;
use crate::registry::folder::Layer;
use crate::registry::packages::Packages;
use crate::registry::pull::Copied;
use crate::registry::{Credentials, PushError, Reference, Registry, RegistryError};

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
    #[command(flatten)]
    to: Destination,
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

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    block_on(append(args))
}

async fn append(args: Args) -> Result<ExitCode, Failure> {
    let (mut base, mut registry) = clients(&args).map_err(|error| failure(&error.into()))?;
    let packages = packages(&args)?;
    let append = Append {
        reference: args.base.clone(),
        platform: args.platform.0.unwrap_or_else(Platform::here),
        packages,
        root: args.root,
        subfolder: args.subfolder,
        scratch: args.scratch.unwrap_or_else(std::env::temp_dir),
        change: Change {
            into: args.into,
            command: args.command,
            user: Some(args.user).filter(|user| !user.is_empty()),
        },
    };
    let failed = |error: PushError| failure(&error);
    let appended = append.run(&mut base, &mut registry).await.map_err(failed)?;
    let layout = &appended.layout;
    registry.push_blobs(layout).await.map_err(failed)?;
    let Appended { base, entries, packages, copied, .. } = &appended;
    if let Some(Layer { blob, entries, .. }) = packages {
        let (lock, digest) = (&args.lock_file, &blob.digest);
        print(&format!("the packages of {lock}: {entries} files and folders ({digest})\n"))?;
    }
    print(&format!("appended {entries} files and folders to {} ({base})\n", args.base))?;
    let how = |how| copied.iter().filter(|one| **one == how).count();
    let [there, mounted, sent] = [Copied::There, Copied::Mounted, Copied::Sent].map(how);
    print(&format!("layers of the base image: {there} there, {mounted} mounted, {sent} copied\n"))?;
    let mut last = String::new();
    for tag in &args.to.tags {
        registry.push_manifest(layout, tag).await.map_err(failed)?;
        last = format!("{}:{tag}", args.to.image);
        print(&format!("pushed {last}, {}\n", layout.digest))?;
    }
    results(&[
        (&args.to.url_file, &last),
        (&args.to.digest_file, &layout.digest.to_string()),
        (&args.base_digest_file, &base.to_string()),
    ])
}

/// The clients of the base image and of the image.
fn clients(args: &Args) -> Result<(Registry, Registry), RegistryError> {
    let dialler = Dialler::new(policy());
    let is_near = args.base.image.is_beside(&args.to.image);
    let of_image = credentials(&args.to.auth, &args.to.image)?;
    let of_base = credentials(&args.to.auth, &args.base.image)?;
    // An authority is for the registries that the credentials are for.
    let is_known = is_near || !of_base.login.is_anonymous();
    let of_base = if is_known { of_base } else { Credentials::default() };
    let options = |plain_http, credentials| Options { plain_http, credentials, total: TOTAL };
    let base = options(args.to.insecure && is_near, of_base);
    let base = Registry::new(dialler.clone(), args.base.image.clone(), base)?.read_only();
    let registry = options(args.to.insecure, of_image);
    Ok((base, Registry::new(dialler, args.to.image.clone(), registry)?))
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
