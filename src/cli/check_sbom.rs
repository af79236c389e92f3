//! `convoke check-sbom`: takes the list of packages that a scanner has made of an image for the step that pushes it. A step of builds runs it.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;

use super::check_scan::{NOT_WHOLE, tell};
use super::push_image::{failure, written_new};
use super::{Failure, print, sbom};
use crate::registry::{Image, Layout};

/// Bytes of the largest list: what is attached.
const MAX_DOCUMENT: u64 = 32 << 20;

/// Check a list of packages.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Folder with the OCI image layout
    #[arg(long, value_name = "DIR")]
    layout: PathBuf,
    /// The list that the scanner has made: SPDX 2.3 as JSON
    #[arg(long, value_name = "FILE")]
    document: PathBuf,
    /// Where the image is going to be, without a tag
    #[arg(long, value_name = "HOST[:PORT]/NAME")]
    image: Image,
    /// The file to write, which must not be there
    #[arg(long, value_name = "FILE")]
    into: PathBuf,
    /// File that gets what is wrong
    #[arg(long, value_name = "FILE")]
    finding_file: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let layout = Layout::open(&args.layout).map_err(|error| failure(&error.into()))?;
    let list = read(args).and_then(|bytes| sbom::of_image(&bytes, &args.image, &layout.digest));
    let (list, count) = list.map_err(|why| {
        let why = format!("the packages of the image are not listed: {why}");
        tell(std::slice::from_ref(&why), args.finding_file.as_ref());
        Failure::new(NOT_WHOLE, why)
    })?;
    written_new(&args.into, &list)?;
    print(&format!("the image {} has {}\n", layout.digest, super::count(count, "package")))
}

fn read(args: &Args) -> Result<Vec<u8>, String> {
    let wrong = |error: std::io::Error| error.to_string();
    let file = std::fs::File::open(&args.document).map_err(wrong)?;
    let mut bytes = Vec::new();
    file.take(MAX_DOCUMENT + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() as u64 > MAX_DOCUMENT {
        return Err(format!("the list has more than {} MiB", MAX_DOCUMENT >> 20));
    }
    Ok(bytes)
}
