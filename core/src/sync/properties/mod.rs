//! (tests) A small Git, for the [simulation](crate::sync::simulation) and for tests beside the code: files with definitions, and what a
//! loader makes of them.

pub mod repository;

use std::sync::Arc;

use self::repository::Definitions;
use crate::api::ObjectId;
use crate::definition::Definition;

/// A definition, for tests beside these.
pub fn definition(id: &ObjectId, content: usize) -> Arc<Definition> {
    Definitions::default().get(id, "f.yaml", content)
}
