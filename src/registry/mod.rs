//! The client of container registries (OCI distribution), and the OCI image layout that is pushed.
//!
//! ```text
//! image    (pure) the registry, the name and the tags of an image
//! auth     (pure) docker's config.json, and what a registry asks for (WWW-Authenticate)
//! manifest (pure) index.json, the manifest and its descriptors
//! error    (pure) the errors; none of them holds a credential
//! layout   opens the files of a layout, follows no symbolic link, and checks sizes and digests
//! client   sends requests, signs in, tries again
//! push     what is pushed, and in which order
//! reference (pure) a base image, as people name it
//! base     (pure) the manifest and the configuration of a base image, and what becomes of them
//! folder   makes a layer of a folder, and follows no symbolic link there
//! packages the layer of installed packages, and what the configuration says of it
//! pull     manifests and blobs of a base image, and blobs that go on to another registry
//! append   a folder, a base image, and the image that becomes of them
//! save     writes an image as a layout
//! fetch    asks for manifests
//! attestations (pure) what is signed about an image, as cosign keeps it
//! attest   writes and reads that
//! referrers (pure) what is attached to an image: artifacts, and the list of them
//! attach   attaches files to an image
//! retag    has a tag name an image that is there
//! describe (pure) what rules see of an image
//! layers   (pure) the layers of a build that are kept for the next one: their index, and the manifests of its images
//! cache    keeps such layers in the registry, and fetches them
//! ```
//! What is in a layout or a folder is hostile: whoever wrote the Dockerfile may have written it. Connections are made by [`crate::net`], whose
//! dialler the caller gives.

pub mod append;
pub mod attach;
mod attest;
pub mod attestations;
pub mod auth;
pub mod base;
pub mod cache;
pub mod client;
pub mod describe;
pub mod error;
pub mod fetch;
pub mod folder;
pub mod image;
pub mod layers;
pub mod layout;
pub mod manifest;
pub mod packages;
pub mod pull;
pub mod push;
pub mod reference;
pub mod referrers;
mod retag;
pub mod save;

pub use self::append::Append;
pub use self::attach::Attachment;
pub use self::auth::Credentials;
pub use self::client::Registry;
pub use self::error::{BaseError, FolderError, LayoutError, PushError, RegistryError};
pub use self::image::{Image, Tag};
pub use self::layout::Layout;
pub use self::manifest::Digest;
pub use self::reference::Reference;
