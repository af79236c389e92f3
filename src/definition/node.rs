//! A YAML document as a tree in which every node and every key knows its place.

use std::fmt;

use serde_json::{Number, Value};

/// A place in a file. Both from 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

impl Position {
    /// The first character of a file.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// A node and where it starts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub at: Position,
    pub data: Data,
}

/// What a node holds. Numbers are finite.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Data {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
    /// It could not be read; a fault of the document says why, so nobody else needs to complain.
    Unknown,
}

/// One key of a map; keys are unique within it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub key: String,
    pub key_at: Position,
    pub value: Node,
}

impl Node {
    pub fn as_map(&self) -> Option<&[Entry]> {
        match &self.data {
            Data::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&[Node]> {
        match &self.data {
            Data::List(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match &self.data {
            Data::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.data, Data::Null)
    }

    pub fn is_unknown(&self) -> bool {
        matches!(self.data, Data::Unknown)
    }

    /// The entry of a map with that key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.as_map()?.iter().find(|entry| entry.key == key)
    }

    /// The value of a map's entry with that key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        match &mut self.data {
            Data::Map(entries) => {
                entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.value)
            }
            _ => None,
        }
    }

    /// The node behind a list of keys.
    pub fn at_path(&self, keys: &[&str]) -> Option<&Node> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }

    /// What the node is, for messages.
    pub fn type_name(&self) -> &'static str {
        match &self.data {
            Data::Null | Data::Unknown => "null",
            Data::Bool(_) => "a boolean",
            Data::Number(number) if number.is_f64() => "a number with a fraction or exponent",
            Data::Number(_) => "an integer",
            Data::String(_) => "a string",
            Data::List(_) => "a list",
            Data::Map(_) => "an object",
        }
    }

    /// The plain value, without places.
    pub fn to_value(&self) -> Value {
        match &self.data {
            Data::Null | Data::Unknown => Value::Null,
            Data::Bool(value) => Value::Bool(*value),
            Data::Number(number) => Value::Number(number.clone()),
            Data::String(text) => Value::String(text.clone()),
            Data::List(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Data::Map(entries) => Value::Object(
                entries.iter().map(|entry| (entry.key.clone(), entry.value.to_value())).collect(),
            ),
        }
    }

    /// The place of a field written as `spec.env[0].name`: as deep as it can be followed.
    /// Keys may hold dots; the longest matching key wins.
    pub fn locate(&self, field: &str) -> Position {
        let mut node = self;
        let mut rest = field.trim_start_matches('.');
        while !rest.is_empty() {
            let step = match &node.data {
                Data::List(items) => rest.strip_prefix('[').and_then(|inner| {
                    let (index, tail) = inner.split_once(']')?;
                    Some((items.get(index.parse::<usize>().ok()?)?, tail))
                }),
                Data::Map(entries) => entries
                    .iter()
                    .filter_map(|entry| {
                        let tail = rest.strip_prefix(entry.key.as_str())?;
                        (tail.is_empty() || tail.starts_with(['.', '['])).then_some((entry, tail))
                    })
                    .max_by_key(|(entry, _)| entry.key.len())
                    .map(|(entry, tail)| (&entry.value, tail)),
                _ => None,
            };
            let Some((next, tail)) = step else { break };
            node = next;
            rest = tail.trim_start_matches('.');
        }
        node.at
    }
}

/// The way from the root of a document to a node; costs nothing until it is shown.
#[derive(Clone, Copy)]
pub(super) enum Field<'a> {
    Root,
    Key(&'a Field<'a>, &'a str),
    Index(&'a Field<'a>, usize),
}

impl Field<'_> {
    /// As a JSON pointer (RFC 6901).
    pub fn pointer(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Key(parent, key) => {
                format!("{}/{}", parent.pointer(), key.replace('~', "~0").replace('/', "~1"))
            }
            Self::Index(parent, index) => format!("{}/{index}", parent.pointer()),
        }
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Field::Root, key) => f.write_str(&super::diagnostic::clip(key)),
            Self::Key(parent, key) => write!(f, "{parent}.{}", super::diagnostic::clip(key)),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
