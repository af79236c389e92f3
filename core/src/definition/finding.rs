//! What a check of a document finds, before its place in the file is known.

/// What is wrong at a JSON pointer (relative to the document).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The JSON pointer.
    pub pointer: String,
    /// Whether the key is wrong, not the value.
    pub on_key: bool,
    /// The code of the problem.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Finding {
    /// A finding about the value at a pointer, without a hint.
    #[must_use]
    pub fn on_value(
        pointer: impl Into<String>,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self { pointer: pointer.into(), on_key: false, code, message: message.into(), hint: None }
    }

    /// A finding about the key at a pointer, without a hint.
    #[must_use]
    pub fn on_key(
        pointer: impl Into<String>,
        code: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self { on_key: true, ..Self::on_value(pointer, code, message) }
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}
