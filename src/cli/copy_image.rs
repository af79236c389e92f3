//! `convoke copy-image`: copies an image from an OCI image layout into a new one. A step of builds runs it, between the steps that run foreign code
//! and those that scan and push.
//!
//! The layout is hostile, as for `push-image`, and it may change meanwhile: each blob is copied with its digest, and the new layout is written from
//! what was read once.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;

use super::push_image::failure;
use super::{Failure, print};
use crate::registry::Layout;
use crate::registry::save::NewLayout;

/// Copy an image.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Folder with the OCI image layout
    #[arg(long, value_name = "DIR")]
    layout: PathBuf,
    /// The folder to make, which must not be there
    #[arg(long, value_name = "DIR")]
    into: PathBuf,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let layout = Layout::open(&args.layout).map_err(|error| failure(&error.into()))?;
    NewLayout::copy_of(&layout, &args.into).map_err(|error| failure(&error))?;
    let layers = super::count(layout.layers.len(), "layer");
    print(&format!("copied the image {}, {layers}\n", layout.digest))
}
