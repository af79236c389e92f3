//! Installed packages of Python: a layer of its own, between those of the base image and that of the folder. So it stays the same
//! when only the folder changes.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::base::{self, Base, LAYER};
use super::error::FolderError;
use super::folder::{self, Layer};
use super::manifest::{Descriptor, Digest, MAX_LAYERS};

/// Where a shell looks for programs if an image says nothing.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Packages, as `pip install --target` leaves them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packages {
    /// The folder that has them. It must be no symbolic link.
    pub folder: PathBuf,
    /// Where they are in the image: an absolute path.
    pub into: String,
}

impl Packages {
    /// Makes the layer. `scratch` is a folder for a file without a name.
    ///
    /// # Errors
    /// What no layer takes, with its path.
    pub fn layer(&self, scratch: &Path) -> Result<Layer, FolderError> {
        folder::packages(&self.folder, &self.into, scratch).map_err(|error| match error {
            FolderError::Scratch { .. } => error,
            other => FolderError::Packages(Box::new(other)),
        })
    }
}

/// The configuration of a base image and its layers, with a layer of packages on top. `layer` is its descriptor, and the digest of its tar.
/// Python finds the packages that are at `into`, and shells their programs.
///
/// # Errors
/// Why nothing can be appended to it.
pub fn below(
    bytes: &[u8],
    base: &Base,
    (layer, diff_id): (&Descriptor, &Digest),
    into: &str,
) -> Result<(Vec<u8>, Base), String> {
    // That of the folder is appended, too.
    if base.layers.len() + 2 > MAX_LAYERS {
        let (found, most) = (base.layers.len(), MAX_LAYERS - 2);
        return Err(format!("it has {found} layers, and the most below packages is {most}"));
    }
    let mut all = base::with_layer(bytes, base.layers.len(), diff_id, into)?;
    let config = base::config(&mut all)?;
    before(config, "PYTHONPATH", into, None)?;
    before(config, "PATH", &format!("{into}/bin"), Some(DEFAULT_PATH))?;
    let mut with = base.clone();
    with.layers.push((LAYER, layer.clone()));
    Ok((Value::Object(all).to_string().into_bytes(), with))
}

/// Puts a path before those that a variable has. If it has none, they are `default`.
fn before(
    config: &mut Map<String, Value>,
    name: &str,
    path: &str,
    default: Option<&str>,
) -> Result<(), String> {
    let all = config.entry("Env").or_insert(Value::Null);
    if all.is_null() {
        *all = Value::Array(Vec::new());
    }
    let Value::Array(all) = all else {
        return Err("its configuration has an Env that is no list".into());
    };
    let is_it = |one: &Value| {
        one.as_str().and_then(|one| one.split_once('=')).is_some_and(|(have, _)| have == name)
    };
    // Of several the last one counts.
    let had = all.iter().rev().find(|one| is_it(one)).and_then(Value::as_str);
    let had = had.and_then(|one| one.split_once('=')).map(|(_, value)| value);
    // An empty one has nothing: behind a colon it would be the working directory.
    let had = had.filter(|value| !value.is_empty()).or(default);
    let value = had.map_or_else(|| path.to_owned(), |had| format!("{path}:{had}"));
    let value = Value::from(format!("{name}={value}"));
    match all.iter_mut().rev().find(|one| is_it(one)) {
        Some(one) => *one = value,
        None => all.push(value),
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/packages.rs"]
mod tests;
