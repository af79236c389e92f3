//! Controllers: the runtime (queue, backoff, deadlines) and one folder a kind.

pub mod queue;
pub mod runtime;
