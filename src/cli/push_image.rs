//! `convoke push-image`: pushes an image from an OCI image layout. A step of builds runs it, in a pod that has run a Dockerfile.
//!
//! The layout is hostile, and so is every other folder that the pod's steps share. This process has the credentials of the registry: it reads
//! regular files of the layout only, follows no symbolic link there, and prints no credential.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args as ClapArgs};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

use super::connection::block_on;
use super::{FOUND, Failure, print};
use crate::net::{AddressRange, Dialler, Policy};
use crate::registry::client::Options;
use crate::registry::referrers::MediaType;
use crate::registry::{
    Attachment, BaseError, Credentials, FolderError, Image, Layout, PushError, Registry,
    RegistryError, Tag, auth,
};

/// Exit code: the registry refuses the image.
const REFUSED: u8 = 31;
/// Exit code: the registry cannot be reached.
const UNREACHABLE: u8 = 32;
/// Exit code: the layout is not what it should be.
pub(super) const INVALID: u8 = 33;
/// Exit code: the folder has what no layer takes.
pub(super) const FOLDER: u8 = 23;
/// Exit code: the base image is not there, or may not be pulled.
const NO_BASE: u8 = 34;
/// Exit code: the registry is not used as it is. It speaks plain HTTP, or its certificate is not trusted.
const NO_TLS: u8 = 39;
/// Exit code: nothing can be appended to the base image.
const WRONG_BASE: u8 = 35;
/// How long a push may take. A build has a time of its own (`spec.timeout`), which is shorter as a rule.
pub(super) const TOTAL: Duration = Duration::from_secs(3600);
/// Bytes of the largest file of credentials: what a Secret may hold.
const MAX_CREDENTIALS: u64 = 1 << 20;
/// Ranges inside networks in which registries are, besides the private ones.
const RANGES: [&str; 4] = ["100.64.0.0/10", "198.18.0.0/15", "240.0.0.0/4", "fc00::/7"];

/// Push an image.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Folder with the OCI image layout
    #[arg(long, value_name = "DIR")]
    layout: PathBuf,
    /// A file to attach to the image, before any tag is set; may be given several times
    #[arg(long = "attach", value_name = "FILE=MEDIA_TYPE", value_parser = attached)]
    attach: Vec<(PathBuf, MediaType)>,
    /// File that gets the digests of what is attached, one a line
    #[arg(long, value_name = "FILE")]
    attached_file: Option<PathBuf>,
    #[command(flatten)]
    to: Destination,
}

/// What to attach: a file and its media type.
fn attached(text: &str) -> Result<(PathBuf, MediaType), String> {
    let (file, kind) = text.rsplit_once('=').unwrap_or_default();
    if file.is_empty() {
        return Err("it must look like sbom.spdx.json=application/spdx+json".into());
    }
    Ok((file.into(), kind.parse()?))
}

/// Where an image goes.
#[derive(Debug, ClapArgs)]
pub(super) struct Destination {
    /// Where to push the image, without a tag
    #[arg(long, value_name = "HOST[:PORT]/NAME")]
    pub image: Image,
    /// A tag to give it; may be given several times
    #[arg(long = "tag", value_name = "TAG", required = true)]
    pub tags: Vec<Tag>,
    #[command(flatten)]
    pub access: Access,
    /// File that gets the image with its last tag
    #[arg(long, value_name = "FILE")]
    pub url_file: Option<PathBuf>,
    /// File that gets the digest of the manifest
    #[arg(long, value_name = "FILE")]
    pub digest_file: Option<PathBuf>,
}

/// How registries are asked.
#[derive(Debug, ClapArgs)]
pub(super) struct Access {
    /// Folder with docker's config.json and perhaps a ca.crt; empty means without credentials
    #[arg(long, value_name = "FOLDER", default_value = "", hide_default_value = true)]
    pub auth: String,
    /// Push over plain HTTP; a base image is pulled so only if it is in the same registry
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false)]
    pub insecure: bool,
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    block_on(push(args))
}

async fn push(args: Args) -> Result<ExitCode, Failure> {
    let Args { layout, attach, attached_file, to } = args;
    let layout = Layout::open(&layout).map_err(|error| failure(&error.into()))?;
    let open = |(file, kind): (PathBuf, MediaType)| Attachment::open(&file, kind);
    let attachments: Result<Vec<_>, _> = attach.into_iter().map(open).collect();
    let attachments = attachments.map_err(|error| failure(&PushError::Attachment(error)))?;
    let registry = client(&to.image, &to.access).map_err(|error| failure(&error.into()));
    let mut registry = registry?;
    let pushed = registry.push_blobs(&layout).await.map_err(|error| failure(&error))?;
    // A tag never names the image without what belongs to it.
    if !attachments.is_empty() {
        registry.push_untagged(&layout).await.map_err(|error| failure(&error))?;
    }
    let mut attached = Vec::new();
    for attachment in &attachments {
        let digest = registry.attach(&layout, attachment).await.map_err(|error| failure(&error))?;
        print(&format!("attached {}, {digest}\n", attachment.name()))?;
        attached.push(digest.to_string());
    }
    let mut last = String::new();
    for tag in &to.tags {
        registry.push_manifest(&layout, tag).await.map_err(|error| failure(&error))?;
        last = format!("{}:{tag}", to.image);
        let (there, layers) = (pushed.there, super::count(pushed.layers, "layer"));
        print(&format!("pushed {last}, {}, {there} of {layers} were there\n", layout.digest))?;
    }
    results(&[
        (&to.url_file, &last),
        (&to.digest_file, &layout.digest.to_string()),
        (&attached_file, &attached.join("\n")),
    ])
}

/// The client of an image that is pushed.
pub(super) fn client(image: &Image, access: &Access) -> Result<Registry, RegistryError> {
    let credentials = credentials(&access.auth, image)?;
    let options = Options { plain_http: access.insecure, credentials, total: TOTAL };
    Registry::new(Dialler::new(policy()), image.clone(), options)
}

/// Writes what a step tells.
pub(super) fn results(all: &[(&Option<PathBuf>, &str)]) -> Result<ExitCode, Failure> {
    for (file, text) in all {
        if let Some(file) = file {
            write(file, text).map_err(|error| {
                Failure::new(FOUND, format!("cannot write {}: {error}", file.display()))
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A build's own registry is dialled: it may be anywhere but where nothing is ever dialled, such as the metadata service of a cloud.
pub(super) fn policy() -> Policy {
    let ranges = RANGES.iter().filter_map(|range| range.parse::<AddressRange>().ok()).collect();
    Policy { insecure: true, single_tenant: true, ranges, explains: true, ..Policy::default() }
}

/// The credentials in a folder. It is mounted from a Secret, so symbolic links are followed there.
pub(super) fn credentials(folder: &str, image: &Image) -> Result<Credentials, RegistryError> {
    if folder.is_empty() {
        return Ok(Credentials::default());
    }
    let wrong = |why: String| RegistryError::Credentials { why };
    let config = small(&Path::new(folder).join("config.json")).map_err(wrong)?;
    let roots = small(&Path::new(folder).join("ca.crt")).map_err(wrong)?;
    let login = match config {
        Some(config) => auth::login(&config, image).map_err(wrong)?,
        // A registry of one's own may ask for nothing.
        None if roots.is_some() => auth::Login::Anonymous,
        None => return Err(wrong("there is no config.json and no ca.crt".into())),
    };
    Ok(Credentials { login, roots })
}

/// A small file, if it is there.
fn small(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let name = path.file_name().unwrap_or_default().display();
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{name} cannot be read: {error}")),
    };
    let mut bytes = Vec::new();
    let read = file.take(MAX_CREDENTIALS + 1).read_to_end(&mut bytes);
    read.map_err(|error| format!("{name} cannot be read: {error}"))?;
    if bytes.len() as u64 > MAX_CREDENTIALS {
        return Err(format!("{name} is larger than 1 MiB"));
    }
    Ok(Some(bytes))
}

/// Writes a new file. What is in its place is not followed, and not written over.
pub(super) fn written_new(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let written = openat(CWD, path, flags, Mode::from_raw_mode(0o644))
        .map_err(std::io::Error::from)
        .and_then(|file| std::fs::File::from(file).write_all(content));
    written
        .map_err(|error| Failure::new(FOUND, format!("cannot write {}: {error}", path.display())))
}

/// Writes a small file. Other steps share its folder, too: what is in its place is not followed, and holds nothing up.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(CWD, path, flags, Mode::from_raw_mode(0o644))?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut file = std::fs::File::from(file);
    file.set_len(0)?;
    file.write_all(text.as_bytes())
}

pub(super) fn failure(error: &PushError) -> Failure {
    let code = match error {
        PushError::Base(BaseError::Registry(RegistryError::NoTls { .. }))
        | PushError::Registry(RegistryError::NoTls { .. }) => NO_TLS,
        PushError::Layout(_) | PushError::Attachment(_) => INVALID,
        PushError::Folder(FolderError::Scratch { .. }) | PushError::NotWritten { .. } => FOUND,
        PushError::Folder(_) => FOLDER,
        PushError::Base(BaseError::Registry(error)) if error.may_pass() => UNREACHABLE,
        PushError::Base(BaseError::Registry(_)) => NO_BASE,
        PushError::Base(BaseError::Invalid { .. }) => WRONG_BASE,
        PushError::Registry(error) if error.may_pass() => UNREACHABLE,
        PushError::Registry(_) => REFUSED,
    };
    Failure::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b5_every_range_in_which_a_registry_may_be_counts() {
        assert_eq!(policy().ranges.len(), RANGES.len());
    }

    #[test]
    fn b5_results_go_into_regular_files_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("old"), "much longer than before").expect("a file");
        for name in ["old", "new"] {
            write(&at(name), "text").expect(name);
            assert_eq!(std::fs::read_to_string(at(name)).expect(name), "text");
        }
        std::os::unix::fs::symlink(at("old"), at("link")).expect("a link");
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0)
            .expect("a pipe");
        for name in ["link", "pipe", "none/x"] {
            write(&at(name), "other").expect_err(name);
        }
        assert_eq!(std::fs::read_to_string(at("old")).expect("old"), "text");
    }
}
