//! `convoke check-lock-file`: checks a lock file of pip, and writes what pip is to install. A step of builds runs it before pip.
//!
//! The file is hostile, and so is its path: no symbolic link is followed.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;

use super::lock_file::{self, Package};
use super::push_image::results;
use super::{Failure, count, print};
use crate::registry::folder;

/// Exit code: the lock file is refused.
const REFUSED: u8 = 24;
/// Bytes of the largest lock file.
const MAX_FILE: u64 = 4 << 20;
/// Bytes of a finding in the result.
const MAX_RESULT: usize = 300;

/// Check a lock file.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// Folder that holds the source folder; from here on no symbolic link is followed
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// The source folder, relative to --root
    #[arg(long, value_name = "PATH", default_value = ".")]
    subfolder: String,
    /// The lock file, relative to the source folder
    #[arg(long, value_name = "FILE")]
    lock_file: String,
    /// File that gets the packages, one a line
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// File that gets what is wrong
    #[arg(long, value_name = "FILE")]
    finding_file: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let packages = match read(args) {
        Ok(packages) => packages,
        Err(why) => {
            let why = format!("{}: {why}", args.lock_file);
            let short = why.get(..why.floor_char_boundary(MAX_RESULT)).unwrap_or_default();
            // It is refused also when nobody can be told of it here.
            if let Err(failure) = results(&[(&args.finding_file, short)]) {
                print(&format!("{}\n", failure.message))?;
            }
            return Err(Failure::new(REFUSED, format!("the lock file is refused: {why}")));
        }
    };
    let lines: Vec<_> = packages.iter().map(ToString::to_string).collect();
    results(&[(&Some(args.output.clone()), &(lines.join("\n") + "\n"))])?;
    print(&format!("{} has {}\n", args.lock_file, count(packages.len(), "package")))
}

fn read(args: &Args) -> Result<Vec<Package>, String> {
    let path = format!("{}/{}", args.subfolder, args.lock_file);
    let file = folder::file(&args.root, &path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!("it is larger than {} MiB", MAX_FILE >> 20));
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    lock_file::read(&text).map_err(|error| error.to_string())
}
