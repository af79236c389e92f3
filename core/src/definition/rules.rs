//! The table of problem codes, with meaning and severity. A test compares it with `docs/problems.md`.

use super::diagnostic::code;
use crate::api::git_sync::Severity::{self, Error, Warning};

/// One problem code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// `CVK0123`.
    pub code: &'static str,
    /// The severity of a problem of this code.
    pub severity: Severity,
    /// One sentence.
    pub meaning: &'static str,
}

/// Every code that a definition can have, sorted. The codes of an apply (`CVK09xx`) are not among them.
pub const RULES: &[Rule] = &[
    rule(code::SYNTAX, Error, "The file is no YAML or JSON."),
    rule(code::DUPLICATE_KEY, Error, "A mapping has the same key twice."),
    rule(
        code::YAML,
        Error,
        "YAML that is not accepted: merge keys, custom tags, keys that are no scalars, ambiguous numbers.",
    ),
    rule(
        code::BUDGET,
        Error,
        "A budget is exceeded: size, depth, documents, nodes, files, all of them together; or a file has more problems than are told (a warning when all of these are).",
    ),
    rule(code::ENCODING, Error, "The file is not UTF-8."),
    rule(code::ENTRY, Error, "A link, submodule, LFS pointer or odd entry."),
    rule(code::UNREADABLE, Error, "The file cannot be read."),
    rule(code::EMPTY, Error, "The path holds no definition at all."),
    rule(
        code::IGNORE,
        Error,
        "A pattern in a `.convokeignore` file that cannot be used. What lies beside and below that file is kept as it is.",
    ),
    rule(
        code::FRONT_MATTER,
        Error,
        "An `agent.md` whose front matter is missing or cannot be one.",
    ),
    rule(
        code::NOT_AN_OBJECT,
        Error,
        "The document is no object, or apiVersion or kind is missing.",
    ),
    rule(
        code::API_VERSION,
        Error,
        "The group or version is almost ours, or one that does not exist.",
    ),
    rule(code::KIND, Error, "The kind does not exist, or may not be synced."),
    rule(code::NAME, Error, "The name is missing or no DNS label."),
    rule(
        code::METADATA,
        Error,
        "Metadata that may not come from Git: fields, labels or annotations.",
    ),
    rule(code::DUPLICATE_OBJECT, Error, "The same object twice in the commit."),
    rule(code::UNKNOWN_FIELD, Error, "A field that does not exist."),
    rule(code::MISSING_FIELD, Error, "A required field is missing."),
    rule(code::TYPE, Error, "A value of the wrong type."),
    rule(code::VALUE, Error, "A value that is not allowed, or a NUL character."),
    rule(code::RULE, Error, "A rule over several fields is broken."),
    rule(code::INCLUDE, Error, "A `*File` field whose file cannot be used."),
    rule(
        code::VARIABLE,
        Error,
        "A variable that does not exist, that is written wrongly, or whose value does not fit where it stands.",
    ),
    rule(
        code::IMAGE_PATH,
        Error,
        "An AgentBuild without `output.registry` whose image does not begin with the namespace.",
    ),
    rule(
        code::REFERENCE,
        Warning,
        "A reference to an object that is neither in the commit nor in the cluster.",
    ),
    rule(code::UNPINNED, Warning, "A package without a version."),
    rule(
        code::MODEL,
        Warning,
        "An agent's `model` that the ModelAPI does not serve, as far as this commit says.",
    ),
    rule(
        code::LEFT_TO_IMAGE,
        Warning,
        "An agent with an image of its own whose `tools`, `requireApproval` or `reload: Hot` only that image can keep.",
    ),
];

const fn rule(code: &'static str, severity: Severity, meaning: &'static str) -> Rule {
    Rule { code, severity, meaning }
}

#[cfg(test)]
#[path = "tests/rules.rs"]
mod tests;
