//! Decides which addresses may be dialled, and makes all connections but those to the API server, which has a client of its own
//! (`cluster`). No other code opens connections to the outside.
//!
//! There are two kinds of destination: a URL that somebody chose, and a pod of an object of ours.
//!
//! ```text
//! address (pure) the class of each address
//! policy  (pure) the classes that may be dialled
//! proxy   (pure) an HTTP proxy
//! dial    URLs: resolves names, checks each address, and connects only to addresses that were checked
//! pod     pods: connects to the address that Kubernetes reports
//! error   the errors; their texts reveal nothing about addresses that may not be dialled
//! ```
//! An address is checked before it is dialled. So a refusal is the same whether or not something listens there.

pub mod address;
pub mod dial;
pub mod error;
pub mod pod;
pub mod policy;
pub mod proxy;
pub mod tls;

pub use self::address::AddressClass;
pub use self::dial::{Client, ClientOptions, Dialler};
pub use self::error::{NetError, NotAllowed};
pub use self::pod::PodClient;
pub use self::policy::{AddressRange, Endpoint, Policy};
pub use self::proxy::ProxyServer;
