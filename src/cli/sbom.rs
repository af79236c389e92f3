//! (pure) The list of packages that a scanner has made of an image (SPDX 2.3), and what becomes of it: it names the image, and what the scanner
//! says of files is taken out. It computes their checksums from the machine on which it runs, and not from the image.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use serde_json::{Value, json};

use crate::registry::{Digest, Image};

/// How ids of files begin.
const FILE: &str = "SPDXRef-File-";

/// The document with the image in place of the package that stands for all, and how many packages it lists.
///
/// # Errors
/// Why it is no list of the packages of an image.
pub fn of_image(
    document: &[u8],
    image: &Image,
    digest: &Digest,
) -> Result<(Vec<u8>, usize), String> {
    let mut all: Value =
        serde_json::from_slice(document).map_err(|error| format!("it is no JSON: {error}"))?;
    if all["spdxVersion"] != "SPDX-2.3" {
        return Err("it is no SPDX 2.3".into());
    }
    let is_main = |relation: &&Value| {
        relation["relationshipType"] == "DESCRIBES"
            && relation["spdxElementId"] == "SPDXRef-DOCUMENT"
    };
    let relations = all["relationships"].as_array().map(Vec::as_slice).unwrap_or_default();
    let main = relations.iter().find(is_main).map(|one| one["relatedSpdxElement"].clone());
    let main = main.filter(Value::is_string).ok_or("it describes nothing")?;
    let packages = all["packages"].as_array_mut().ok_or("it has no packages")?;
    let count = packages.iter().filter(|package| package["SPDXID"] != main).count();
    let described = packages.iter_mut().find(|package| package["SPDXID"] == main);
    let described = described.and_then(Value::as_object_mut).ok_or("it describes nothing")?;
    if count == 0 {
        return Err("the image has no packages that the scanner can name".into());
    }
    let last = image.name().rsplit('/').next().unwrap_or_default();
    let purl = format!("pkg:oci/{last}@sha256%3A{}?repository_url={image}", digest.hex());
    described.insert("name".into(), image.to_string().into());
    described.insert("versionInfo".into(), digest.to_string().into());
    described.insert("primaryPackagePurpose".into(), "CONTAINER".into());
    described.insert(
        "externalRefs".into(),
        json!([{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]),
    );
    let is_of_file =
        |relation: &Value, key: &str| relation[key].as_str().is_some_and(|id| id.starts_with(FILE));
    if let Some(relations) = all["relationships"].as_array_mut() {
        relations.retain(|one| {
            !is_of_file(one, "spdxElementId") && !is_of_file(one, "relatedSpdxElement")
        });
    }
    let Some(top) = all.as_object_mut() else { return Err("it is no object".into()) };
    top.remove("files");
    top.insert("name".into(), format!("{image}@{digest}").into());
    // Another document, another name: ids in it are random.
    let namespace = format!("https://convoke.dev/sbom/{}", Digest::of(document).hex());
    top.insert("documentNamespace".into(), namespace.into());
    Ok((all.to_string().into_bytes(), count))
}

#[cfg(test)]
#[path = "tests/sbom.rs"]
mod tests;
