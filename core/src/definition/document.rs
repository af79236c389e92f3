//! Parses YAML text into documents, with the place of every node, in one pass over the events of the parser.
//!
//! YAML 1.2 core schema. Refused, because readers disagree or because they hide things: duplicate keys, merge keys,
//! custom tags, keys that are no scalars, numbers with leading zeros, infinities. Budgets bound depth and nodes;
//! an alias costs as many nodes as it stands for, and a long text as many as it could hold.

use std::collections::HashMap;

use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span};

use super::diagnostic::code;
use super::places::{Place, Places, place_at, place_of_index};
use super::scalar::resolve;
use crate::text::quote;

/// What is wrong at a place of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The place.
    pub place: Place,
    /// The code of the problem.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// Limits on one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Most documents.
    pub documents: usize,
    /// Most collections nested in each other.
    pub depth: usize,
    /// Most nodes of one document. An alias counts as many as it stands for.
    pub nodes: usize,
}

/// A parsed document.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Document {
    /// Its value.
    pub value: Value,
    pub(super) places: Places,
    /// Whether the instructions are the text of the file below its front matter.
    pub(super) has_body: bool,
}

impl Document {
    /// The place of the value at a JSON pointer, or of the nearest value around it.
    #[must_use]
    pub fn place(&self, pointer: &str) -> Place {
        self.places.nearest(pointer).map_or(Place::START, |(_, value)| value)
    }

    /// The place of the key at a JSON pointer, or of the nearest value around it.
    #[must_use]
    pub fn key_place(&self, pointer: &str) -> Place {
        self.places.nearest(pointer).map_or(Place::START, |(key, value)| key.unwrap_or(value))
    }
}

/// The documents of a file.
#[derive(Debug, Default)]
pub struct Parsed {
    /// Documents that are not empty and have no fault.
    pub documents: Vec<Document>,
    /// What is wrong with the file itself: syntax and budgets.
    pub faults: Vec<Fault>,
    /// Documents with faults of their own.
    pub faulty: Vec<Faulty>,
}

/// A document with faults, as far as it could be read. It may still say which object it is.
#[derive(Debug)]
pub struct Faulty {
    /// What could be read.
    pub document: Document,
    /// What is wrong.
    pub faults: Vec<Fault>,
    /// Whether a fault may hide the API group of the object: a fault in a key of the document itself, or in the value of
    /// `apiVersion`, `kind` or `items`.
    pub in_head: bool,
}

/// A fault for the first control character. The parser takes NUL for the end of the text, which would hide the rest.
fn control_character(text: &str) -> Option<Fault> {
    let forbidden = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}');
    let place = place_of_index(text, text.find(forbidden)?);
    Some(fault(place, code::SYNTAX, "a control character is not accepted".into()))
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
                    // A budget is exceeded: the rest of the file is not read.
                    parsed.faults.push(stop);
                    return parsed;
                }
            }
            Some(Err(error)) => {
                let place = place_at(error.marker().line(), error.marker().col());
                let message = error.to_string();
                let message = message.split(" at char").next().unwrap_or_default();
                let hint =
                    message.contains("tab").then(|| "indent with spaces, not tabs".to_owned());
                let message = format!("this is no YAML: {}", quote(message).trim_matches('"'));
                parsed.faults.push(Fault { place, code: code::SYNTAX, message, hint });
                if !matches!(parser.proceed_next_document(), Ok(true)) {
                    return parsed;
                }
            }
        }
    }
}

fn finish(parsed: &mut Parsed, builder: Builder) {
    let Builder { root, places, faults, in_head, explicit, .. } = builder;
    let value = root.unwrap_or(Value::Null);
    let document = Document { value, places, has_body: false };
    if !faults.is_empty() {
        parsed.faulty.push(Faulty { document, faults, in_head });
    } else if explicit || !document.value.is_null() {
        parsed.documents.push(document);
    }
}

fn fault(place: Place, code: &'static str, message: String) -> Fault {
    Fault { place, code, message, hint: None }
}

/// A scalar of the YAML text.
#[derive(Clone, Copy)]
struct Scalar<'a> {
    text: &'a str,
    /// Whether it has neither quotes nor a tag.
    is_plain: bool,
    /// Whether it takes no character in the file.
    is_empty: bool,
    anchor: usize,
    place: Place,
}

/// A collection that is being filled.
struct Open {
    value: Value,
    anchor: usize,
    /// Its node in [`Places`].
    node: usize,
    /// In a mapping: the key whose value comes next.
    key: Option<(String, Place)>,
    /// How many nodes it counts of the budget, so far.
    nodes: usize,
}

/// Builds one document from the events of the parser.
struct Builder {
    budget: Budget,
    stack: Vec<Open>,
    root: Option<Value>,
    /// Whether the document has a value. One with the value `null` is not an empty one.
    explicit: bool,
    places: Places,
    /// The values with anchors: the value, how many nodes it counts, and its node in [`Places`].
    anchors: HashMap<usize, (Value, usize, usize)>,
    faults: Vec<Fault>,
    in_head: bool,
    nodes: usize,
}

impl Builder {
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
        }
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
        let place = place_at(span.start.line(), span.start.col());
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text_tag = tag.as_deref().and_then(|tag| tag.core_suffix().map(str::to_owned));
                if tag.is_some() && text_tag.as_deref() != Some("str") {
                    self.refuse_tag(place);
                }
                let is_plain = matches!(style, ScalarStyle::Plain) && tag.is_none();
                let is_empty = span.start.index() == span.end.index();
                self.scalar(&Scalar { text: &text, is_plain, is_empty, anchor, place })?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                if tag.is_some() {
                    self.refuse_tag(place);
                }
                self.open(Value::Array(Vec::new()), anchor, place)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                if tag.is_some() {
                    self.refuse_tag(place);
                }
                self.open(Value::Object(Map::new()), anchor, place)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(Open { value, anchor, nodes, node, .. }) = self.stack.pop() {
                    self.anchor(anchor, &value, nodes, node);
                    self.fill(value, nodes);
                }
            }
            Event::Alias(id) => self.alias(id, place)?,
            _ => {}
        }
        Ok(())
    }

    fn scalar(&mut self, scalar: &Scalar<'_>) -> Result<(), Fault> {
        let Scalar { text, is_plain, is_empty, anchor, place } = *scalar;
        let weight = weight(text);
        self.count(weight, place)?;
        if self.wants_key() {
            if is_plain && text == "<<" {
                let message = "merge keys are not accepted".to_owned();
                self.fault(place, code::YAML, message, "write the fields out");
            }
            self.key(text, place);
            if let Some(open) = self.stack.last_mut() {
                open.nodes = open.nodes.saturating_add(weight);
            }
            return Ok(());
        }
        self.explicit |= self.stack.is_empty() && !is_empty;
        let value = if is_plain {
            resolve(text).unwrap_or_else(|(message, hint)| {
                self.fault(place, code::YAML, message.to_owned(), hint);
                Value::Null
            })
        } else {
            Value::String(text.to_owned())
        };
        let node = self.place_next(place);
        if is_plain && text.starts_with("${") && text.ends_with('}') {
            self.places.note_plain(node);
        }
        self.anchor(anchor, &value, weight, node);
        self.fill(value, weight);
        Ok(())
    }

    fn alias(&mut self, id: usize, place: Place) -> Result<(), Fault> {
        let nodes = self.anchors.get(&id).map_or(1, |(_, nodes, _)| *nodes);
        self.count(nodes, place)?;
        if self.wants_key() {
            let message = "an alias cannot be a key".to_owned();
            self.fault(place, code::YAML, message, "write the key out");
            self.key("", place);
            return Ok(());
        }
        let known = self.anchors.get(&id).map(|(value, _, of)| (value.clone(), *of));
        if known.is_none() {
            let message = "this alias names nothing, or itself".to_owned();
            self.fault(place, code::YAML, message, "define the anchor before it");
        }
        let node = self.place_next(place);
        let value = known.map(|(value, of)| {
            self.places.note_alias(node, of);
            value
        });
        self.fill(value.unwrap_or_default(), nodes);
        Ok(())
    }

    fn refuse_tag(&mut self, place: Place) {
        let message = "tags are not accepted".to_owned();
        self.fault(place, code::YAML, message, "write the value without the tag");
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

    fn key(&mut self, text: &str, place: Place) {
        let mut key = text.to_owned();
        let double = self.stack.last().is_some_and(|open| open.value.get(&key).is_some());
        if double {
            self.fault(
                place,
                code::DUPLICATE_KEY,
                format!("key {} is there twice", quote(text)),
                "remove one of the two",
            );
            // Kept under another name: the first value may be part of the object's identity.
            key.push_str("\u{0}again");
        }
        if let Some(open) = self.stack.last_mut() {
            open.key = Some((key, place));
        }
    }

    /// Begins a collection.
    fn open(&mut self, value: Value, anchor: usize, place: Place) -> Result<(), Fault> {
        self.count(1, place)?;
        if self.stack.len() >= self.budget.depth {
            return Err(fault(
                place,
                code::BUDGET,
                format!("nested deeper than {}", self.budget.depth),
            ));
        }
        if self.wants_key() {
            self.fault(place, code::YAML, "a key must be a plain text".into(), "quote the key");
            self.key("", place);
            // The collection becomes the value of an empty key. The value that belongs to it in YAML is lost.
        }
        let node = self.place_next(place);
        self.stack.push(Open { value, anchor, node, key: None, nodes: 1 });
        Ok(())
    }

    /// Adds the place of the value that comes next. Returns its node.
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

/// How many nodes a text counts. A long text counts several: a few aliases of one could fill the memory.
fn weight(text: &str) -> usize {
    1 + text.len() / 256
}

#[cfg(test)]
#[path = "tests/document.rs"]
mod tests;
