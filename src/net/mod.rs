//! Whom this process may dial, and the one dialler through which it does. The API server has a client of its own
//! (`cluster`); nothing else opens connections to the outside.
//!
//! ```text
//! policy  (pure) the class of each address, and which classes may be dialled
//! dial    names are resolved, each address is judged, and only what was judged is connected to
//! error   what can go wrong, in words that tell nothing of what may not be dialled
//! ```
//! Nothing is dialled before its address was judged, so a refusal is the same whatever listens there.

pub mod dial;
pub mod error;
pub mod policy;

pub use self::dial::{Client, ClientOptions, Dialler};
pub use self::error::{NetError, NotAllowed};
pub use self::policy::{AddressClass, AddressRange, Endpoint, Policy};
