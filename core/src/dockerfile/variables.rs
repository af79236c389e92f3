//! Variables in the names of images.

use std::collections::BTreeMap;

/// Arguments to which the builder gives values.
const BUILTIN: [&str; 8] = [
    "BUILDPLATFORM",
    "BUILDOS",
    "BUILDARCH",
    "BUILDVARIANT",
    "TARGETPLATFORM",
    "TARGETOS",
    "TARGETARCH",
    "TARGETVARIANT",
];
/// The most bytes of a value.
const MAX_VALUE: usize = 4096;

/// What is known of a variable.
#[derive(Debug, Clone)]
enum Value {
    Known(String),
    /// It is declared, and has no value.
    Unset,
    /// It has a value which is not known, for this reason.
    Unknown(String),
}

/// The variables that a `FROM` sees.
pub struct Scope<'a> {
    build_args: &'a BTreeMap<String, String>,
    declared: BTreeMap<String, Value>,
}

impl<'a> Scope<'a> {
    /// Without any, with these build arguments.
    pub const fn new(build_args: &'a BTreeMap<String, String>) -> Self {
        Self { build_args, declared: BTreeMap::new() }
    }

    /// An `ARG`, with its default as it is written.
    pub fn declare(&mut self, name: &str, default: Option<&str>) {
        let value = if self.declared.contains_key(name) {
            Value::Unknown(format!("{name} is declared twice"))
        } else if BUILTIN.contains(&name) {
            Value::Unknown(format!("{name} follows from the node"))
        } else if let Some(given) = self.build_args.get(name) {
            Value::Known(given.clone())
        } else {
            match default.map(|default| unquoted(default).and_then(|text| self.replaced(text))) {
                None => Value::Unset,
                Some(Ok(value)) => Value::Known(value),
                Some(Err(why)) => Value::Unknown(format!("{name} has no clear default: {why}")),
            }
        };
        self.declared.insert(name.to_owned(), value);
    }

    /// The value of a variable; `None` if it has none.
    fn value(&self, name: &str) -> Result<Option<&str>, String> {
        match self.declared.get(name) {
            Some(Value::Known(value)) => Ok(Some(value)),
            Some(Value::Unset) => Ok(None),
            Some(Value::Unknown(why)) => Err(why.clone()),
            None if BUILTIN.contains(&name) => Err(format!("{name} follows from the node")),
            None if self.build_args.contains_key(name) => {
                Err(format!("{name} is a build argument, and no ARG before the first FROM"))
            }
            None => Ok(None),
        }
    }

    /// A text with its variables replaced: `$NAME`, `${NAME}`, `${NAME:-default}` and `${NAME:+other}`.
    ///
    /// # Errors
    /// A variable has no value, or the text is not understood.
    pub fn replaced(&self, text: &str) -> Result<String, String> {
        let (mut made, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('$') {
            made += literal(before)?;
            let (value, behind) = if let Some(inside) = after.strip_prefix('{') {
                let (inside, behind) = inside.split_once('}').ok_or("a brace does not end")?;
                (self.braced(inside)?, behind)
            } else {
                let (name, behind) = name(after).ok_or("a $ without a name")?;
                (self.must(name)?.to_owned(), behind)
            };
            made += &value;
            rest = behind;
            if made.len() > MAX_VALUE {
                return Err("it is too long".into());
            }
        }
        Ok(made + literal(rest)?)
    }

    fn must(&self, name: &str) -> Result<&str, String> {
        self.value(name)?.ok_or_else(|| format!("{name} has no value"))
    }

    /// What stands between braces.
    fn braced(&self, inside: &str) -> Result<String, String> {
        let (name, operator) = name(inside).ok_or("a $ without a name")?;
        if operator.is_empty() {
            return self.must(name).map(str::to_owned);
        }
        let given = self.value(name)?.filter(|value| !value.is_empty());
        let other = |word| literal(word).map(str::to_owned);
        if let Some(default) = operator.strip_prefix(":-") {
            return given.map_or_else(|| other(default), |value| Ok(value.to_owned()));
        }
        if let Some(word) = operator.strip_prefix(":+") {
            return given.map_or_else(|| Ok(String::new()), |_| other(word));
        }
        Err(format!("${{{inside}}} is not understood"))
    }
}

/// The name at the beginning of a text, and what follows it.
fn name(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    name.starts_with(|c: char| !c.is_ascii_digit()).then_some((name, rest))
}

/// A text without quotes, escapes and variables.
///
/// # Errors
/// It has some.
pub fn literal(text: &str) -> Result<&str, String> {
    match text.find(['$', '"', '\'', '\\', '`']) {
        None => Ok(text),
        Some(at) => {
            let what = if text[at..].starts_with('$') { "a variable" } else { "quotes" };
            Err(format!("{what} cannot be read here"))
        }
    }
}

/// A default without the quotes around all of it.
fn unquoted(text: &str) -> Result<&str, String> {
    let inside = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    match (inside('"'), inside('\'')) {
        (Some(text), _) => Ok(text),
        // In these, variables are not replaced.
        (_, Some(text)) => literal(text),
        (None, None) => Ok(text),
    }
}
