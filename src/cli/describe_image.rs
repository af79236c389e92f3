//! `convoke describe-image`: writes what rules see of an image, as JSON, and the schema of it. A step of builds runs it.
//!
//! The layout is hostile, as for `push-image`: it is read in the same way, so what is described is what is pushed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;

use super::push_image::{INVALID, failure, written_new};
use super::{Failure, print};
use crate::registry::Layout;
use crate::registry::describe::{describe, schema};

/// Describe an image.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Folder with the OCI image layout
    #[arg(long, value_name = "DIR")]
    layout: PathBuf,
    /// The file to write, which must not be there
    #[arg(long, value_name = "FILE")]
    into: PathBuf,
    /// The file for its JSON schema, which must not be there
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Where the image is going to be, without a tag
    #[arg(long, value_name = "IMAGE", default_value = "", hide_default_value = true)]
    image: String,
    /// How it was made
    #[arg(long, value_name = "STRATEGY", default_value = "", hide_default_value = true)]
    strategy: String,
    /// The URL of the repository
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    repository: String,
    /// The commit
    #[arg(long, value_name = "COMMIT", default_value = "", hide_default_value = true)]
    revision: String,
    /// The folder that was built
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    subfolder: String,
    /// The Dockerfile in it
    #[arg(long, value_name = "PATH", default_value = "", hide_default_value = true)]
    dockerfile: String,
    /// The base image to which the folder was appended
    #[arg(long, value_name = "IMAGE", default_value = "", hide_default_value = true)]
    base_image: String,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let layout = Layout::open(&args.layout).map_err(|error| failure(&error.into()))?;
    let mut config = Vec::new();
    let read = layout.config.read(|piece| {
        config.extend_from_slice(&piece);
        true
    });
    read.map_err(|error| failure(&error.into()))?;
    let size = layout.layers.iter().fold(layout.config.size, |sum, layer| sum + layer.size);
    let build = [
        ("image", args.image.as_str()),
        ("strategy", &args.strategy),
        ("repository", &args.repository),
        ("revision", &args.revision),
        ("subfolder", &args.subfolder),
        ("dockerfile", &args.dockerfile),
        ("baseImage", &args.base_image),
    ];
    let described = describe(&build, (&layout.digest, size), &layout.manifest, &config)
        .map_err(|why| Failure::new(INVALID, format!("the image is refused: {why}")))?;
    written_new(&args.into, described.to_string().as_bytes())?;
    if let Some(file) = &args.schema {
        written_new(file, schema().to_string().as_bytes())?;
    }
    print(&format!("the image is {}\n", layout.digest))
}
