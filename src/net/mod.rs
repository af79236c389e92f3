//! Decides which addresses may be dialled, and makes all connections to repositories. The API server has a client of its own
//! (`cluster`). No other code opens connections to the outside.
//!
//! ```text
//! address (pure) the class of each address
//! policy  (pure) the classes that may be dialled
//! dial    resolves names, checks each address, and connects only to addresses that were checked
//! error   the errors; their texts reveal nothing about addresses that may not be dialled
//! ```
//! An address is checked before it is dialled. So a refusal is the same whether or not something listens there.

pub mod address;
pub mod dial;
pub mod error;
pub mod policy;

pub use self::address::AddressClass;
pub use self::dial::{Client, ClientOptions, Dialler};
pub use self::error::{NetError, NotAllowed};
pub use self::policy::{AddressRange, Endpoint, Policy};
