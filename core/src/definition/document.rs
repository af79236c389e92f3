//! YAML text into documents: values, and the place of every node. One pass over the parser's events.
//!
//! YAML 1.2 core schema. Refused, because readers disagree or because they hide things: duplicate keys, merge keys,
//! custom tags, keys that are no scalars, numbers with leading zeros, infinities. Budgets bound depth and nodes;
//! an alias costs as many nodes as it stands for, and a long text as many as it could hold.

use std::collections::HashMap;

use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span};

use super::diagnostic::{code, quote};
use super::places::Places;
use super::scalar::resolve;

/// A place in a file, both from 1, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

impl Default for Place {
    fn default() -> Self {
        Self::START
    }
}

impl Place {
    /// The first character of a file.
    pub const START: Self = Self { line: 1, column: 1 };
}

/// What is wrong at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub place: Place,
    /// Stable code.
    pub code: &'static str,
    /// What.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// Budgets on one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Documents.
    pub documents: usize,
    /// Collections in collections.
    pub depth: usize,
    /// Nodes, aliases counted as what they stand for.
    pub nodes: usize,
}

/// One document.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// Its value.
    pub value: Value,
    pub(super) places: Places,
    /// Whether the instructions are the text of the file below its front matter.
    pub(super) has_body: bool,
}

impl Document {
    /// Where the value at a JSON pointer is, or the nearest value around it.
    #[must_use]
    pub fn place(&self, pointer: &str) -> Place {
        self.places.nearest(pointer).map_or(Place::START, |(_, value)| value)
    }

    /// Where the key at a JSON pointer is, or the nearest value around it.
    #[must_use]
    pub fn key_place(&self, pointer: &str) -> Place {
        self.places.nearest(pointer).map_or(Place::START, |(key, value)| key.unwrap_or(value))
    }
}

/// What a file holds.
#[derive(Debug, Default)]
pub struct Parsed {
    /// Documents that are not empty and have no fault.
    pub documents: Vec<Document>,
    /// What is wrong with the file itself: syntax and budgets.
    pub faults: Vec<Fault>,
    /// Documents with faults of their own.
    pub faulty: Vec<Faulty>,
}

/// A document with faults of its own, as far as it could be read: its identity may still be known.
#[derive(Debug)]
pub struct Faulty {
    /// What could be read.
    pub document: Document,
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// Whether a fault may hide which project's object this is: one in the keys of the document itself, or in the
    /// value of a key that says it.
    pub in_head: bool,
}

/// A character that no YAML may hold. The parser takes NUL for the end of the text: what follows would be hidden.
fn control_character(text: &str) -> Option<Fault> {
    let forbidden = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}');
    let place = place_in(text, text.find(forbidden)?);
    Some(fault(place, code::SYNTAX, "a control character is not accepted".into()))
}

/// The place of the character at that index of a text.
pub(super) fn place_in(text: &str, index: usize) -> Place {
    let before = &text[..index];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count());
    at(line, column)
}

/// Reads all documents of a text. A broken document does not hide the others.
#[must_use]
pub fn parse(text: &str, budget: Budget) -> Parsed {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parsed = Parsed::default();
    if let Some(fault) = control_character(text) {
        parsed.faults.push(fault);
        return parsed;
    }
    let mut parser = Parser::new_from_str(text);
    let mut builder = Builder::new(budget);
    let mut seen = 0;
    loop {
        match parser.next_event() {
            None => return parsed,
            Some(Ok((Event::DocumentStart(..), _))) => {
                seen += 1;
                if seen > budget.documents {
                    parsed.faults.push(fault(
                        Place::START,
                        code::BUDGET,
                        format!("more than {} documents in one file", budget.documents),
                    ));
                    return parsed;
                }
                builder = Builder::new(budget);
            }
            Some(Ok((Event::DocumentEnd, _))) => {
                finish(&mut parsed, std::mem::replace(&mut builder, Builder::new(budget)));
            }
            Some(Ok((Event::StreamEnd, _))) => return parsed,
            Some(Ok((event, span))) => {
                if let Err(stop) = builder.event(event, span) {
                    // A budget: what follows in this file is not looked at.
                    parsed.faults.push(stop);
                    return parsed;
                }
            }
            Some(Err(error)) => {
                let place = at(error.marker().line(), error.marker().col());
                let message = error.to_string();
                let message = message.split(" at char").next().unwrap_or_default();
                parsed.faults.push(fault(
                    place,
                    code::SYNTAX,
                    format!("this is no YAML: {}", quote(message).trim_matches('"')),
                ));
                if !matches!(parser.proceed_next_document(), Ok(true)) {
                    return parsed;
                }
            }
        }
    }
}

fn finish(parsed: &mut Parsed, builder: Builder<'_>) {
    let Builder { root, places, faults, in_head, explicit, .. } = builder;
    let value = root.unwrap_or(Value::Null);
    let document = Document { value, places, has_body: false };
    if !faults.is_empty() {
        parsed.faulty.push(Faulty { document, faults, in_head });
    } else if explicit || !document.value.is_null() {
        parsed.documents.push(document);
    }
}

/// A place from a line (from 1) and a column (from 0).
pub(super) fn at(line: usize, column_from_zero: usize) -> Place {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Place { line: number(line.max(1)), column: number(column_from_zero + 1) }
}

fn fault(place: Place, code: &'static str, message: String) -> Fault {
    Fault { place, code, message, hint: None }
}

/// A collection that is being filled.
struct Open {
    value: Value,
    anchor: usize,
    /// In [`Places`].
    node: usize,
    /// In a mapping: the key whose value comes next.
    key: Option<(String, Place)>,
    nodes: usize,
}

struct Builder<'a> {
    budget: Budget,
    stack: Vec<Open>,
    root: Option<Value>,
    /// Whether the document says `null`, which is not the same as being empty.
    explicit: bool,
    places: Places,
    /// The value, what it costs, and its node in [`Places`].
    anchors: HashMap<usize, (Value, usize, usize)>,
    faults: Vec<Fault>,
    in_head: bool,
    nodes: usize,
    _text: std::marker::PhantomData<&'a str>,
}

impl Builder<'_> {
    fn new(budget: Budget) -> Self {
        Self {
            budget,
            stack: Vec::new(),
            root: None,
            explicit: false,
            places: Places::default(),
            anchors: HashMap::new(),
            faults: Vec::new(),
            in_head: false,
            nodes: 0,
            _text: std::marker::PhantomData,
        }
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
        let place = at(span.start.line(), span.start.col());
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let weight = weight(&text);
                self.count(weight, place)?;
                let text_tag = tag.as_deref().and_then(|tag| tag.core_suffix().map(str::to_owned));
                if tag.is_some() && text_tag.as_deref() != Some("str") {
                    self.fault(
                        place,
                        code::YAML,
                        "tags are not accepted".into(),
                        "write the value without the tag",
                    );
                }
                let plain = matches!(style, ScalarStyle::Plain) && tag.is_none();
                if self.wants_key() {
                    self.key(&text, plain, place);
                    if let Some(open) = self.stack.last_mut() {
                        open.nodes = open.nodes.saturating_add(weight);
                    }
                    return Ok(());
                }
                let text_may_vary = text.starts_with("${") && text.ends_with('}');
                self.explicit |= self.stack.is_empty() && span.start.index() != span.end.index();
                let value = if plain {
                    resolve(&text).unwrap_or_else(|(message, hint)| {
                        self.fault(place, code::YAML, message, hint);
                        Value::Null
                    })
                } else {
                    Value::String(text.into_owned())
                };
                let node = self.place_next(place);
                if plain && text_may_vary {
                    self.places.note_plain(node);
                }
                self.anchor(anchor, &value, weight, node);
                self.fill(value, weight);
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.open(Value::Array(Vec::new()), anchor, tag.is_some(), place)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.open(Value::Object(Map::new()), anchor, tag.is_some(), place)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(Open { value, anchor, nodes, node, .. }) = self.stack.pop() {
                    self.anchor(anchor, &value, nodes, node);
                    self.fill(value, nodes);
                }
            }
            Event::Alias(id) => {
                let known = self.anchors.get(&id);
                let nodes = known.map_or(1, |(_, nodes, _)| *nodes);
                self.count(nodes, place)?;
                if self.wants_key() {
                    self.fault(
                        place,
                        code::YAML,
                        "an alias cannot be a key".into(),
                        "write the key out",
                    );
                    self.key("", false, place);
                    return Ok(());
                }
                let known = self.anchors.get(&id).map(|(value, _, of)| (value.clone(), *of));
                if known.is_none() {
                    self.fault(
                        place,
                        code::YAML,
                        "this alias names nothing, or itself".into(),
                        "define the anchor before it",
                    );
                }
                let node = self.place_next(place);
                let value = known.map(|(value, of)| {
                    self.places.note_alias(node, of);
                    value
                });
                self.fill(value.unwrap_or_default(), nodes);
            }
            _ => {}
        }
        Ok(())
    }

    fn fault(&mut self, place: Place, code: &'static str, message: String, hint: &str) {
        let root_key = self.stack.first().and_then(|open| open.key.as_ref());
        self.in_head |=
            root_key.is_none_or(|(key, _)| matches!(key.as_str(), "apiVersion" | "kind" | "items"));
        self.faults.push(Fault { place, code, message, hint: Some(hint.to_owned()) });
    }

    fn count(&mut self, nodes: usize, place: Place) -> Result<(), Fault> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > self.budget.nodes {
            return Err(fault(
                place,
                code::BUDGET,
                format!("more than {} values in one document", self.budget.nodes),
            ));
        }
        Ok(())
    }

    fn wants_key(&self) -> bool {
        self.stack.last().is_some_and(|open| open.value.is_object() && open.key.is_none())
    }

    fn key(&mut self, text: &str, plain: bool, place: Place) {
        if plain && text == "<<" {
            self.fault(
                place,
                code::YAML,
                "merge keys are not accepted".into(),
                "write the fields out",
            );
        }
        let mut key = text.to_owned();
        let double = self.stack.last().is_some_and(|open| open.value.get(&key).is_some());
        if double {
            self.fault(
                place,
                code::DUPLICATE_KEY,
                format!("key {} is there twice", quote(text)),
                "remove one of the two",
            );
            // Kept apart, so that the first one stays readable for its identity.
            key.push_str("\u{0}again");
        }
        if let Some(open) = self.stack.last_mut() {
            open.key = Some((key, place));
        }
    }

    fn open(
        &mut self,
        value: Value,
        anchor: usize,
        tagged: bool,
        place: Place,
    ) -> Result<(), Fault> {
        self.count(1, place)?;
        if tagged {
            self.fault(
                place,
                code::YAML,
                "tags are not accepted".into(),
                "write the value without the tag",
            );
        }
        if self.stack.len() >= self.budget.depth {
            return Err(fault(
                place,
                code::BUDGET,
                format!("nested deeper than {}", self.budget.depth),
            ));
        }
        if self.wants_key() {
            self.fault(place, code::YAML, "a key must be a plain text".into(), "quote the key");
            self.key("", false, place);
            // The collection becomes that key's value; what YAML meant as value is then out of step, and lost.
        }
        let node = self.place_next(place);
        self.stack.push(Open { value, anchor, node, key: None, nodes: 1 });
        Ok(())
    }

    /// Notes the place of the value that comes next, and gives its node.
    fn place_next(&mut self, place: Place) -> usize {
        let (below, key) = match self.stack.last() {
            None => (None, None),
            Some(open) => match (&open.value, &open.key) {
                (Value::Array(items), _) => (Some((open.node, items.len().to_string())), None),
                (_, Some((key, at))) => (Some((open.node, key.clone())), Some(*at)),
                _ => return open.node,
            },
        };
        self.places.note(below, key, place)
    }

    fn fill(&mut self, value: Value, nodes: usize) {
        let Some(open) = self.stack.last_mut() else {
            self.root = Some(value);
            return;
        };
        open.nodes = open.nodes.saturating_add(nodes);
        match &mut open.value {
            Value::Array(items) => items.push(value),
            Value::Object(map) => {
                if let Some((key, _)) = open.key.take() {
                    map.insert(key, value);
                }
            }
            _ => {}
        }
    }

    fn anchor(&mut self, anchor: usize, value: &Value, nodes: usize, node: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, (value.clone(), nodes, node));
        }
    }
}

/// What a text costs: long ones as several values, or a few aliases of one would fill the memory.
fn weight(text: &str) -> usize {
    1 + text.len() / 256
}

/// One part of a JSON pointer.
#[must_use]
pub fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
#[path = "document_tests.rs"]
mod tests;
