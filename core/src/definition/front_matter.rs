//! `agent.md`: an Agent as a Markdown file. Its front matter holds the fields of the spec, beside `name`,
//! `labels` and `annotations`; the text below is its instructions.

use serde_json::{Map, Value, json};

use super::diagnostic::code;
use super::document::{Budget, Document, Fault, Faulty, Parsed, parse};
use super::nul;
use super::places::{Place, Places, place_at};
use crate::api::{API_VERSION, Kind};

/// Name of the files that are read as Agents. It may be in any case: the Agent of a file that is renamed to AGENT.md must
/// not vanish in silence.
const FILE: &str = "agent.md";

/// The field that takes the body.
pub(super) const BODY: &str = "/spec/config/instructions";

/// Whether the file at this path is an Agent in Markdown.
pub(super) fn is_agent_file(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.eq_ignore_ascii_case(FILE))
}

/// The parts of a file.
struct Parts<'a> {
    /// The front matter with the line that opens it, so that its places are those of the file.
    head: &'a str,
    body: &'a str,
    /// Line of the first line of the body.
    body_line: usize,
}

/// The file as one document of an Agent in plain form, whose places are those of the file.
pub(super) fn read(text: &str, path: &str, budget: Budget, body_bytes: u64) -> Parsed {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let refused = |place, message: &str, hint: &str| Parsed {
        faults: vec![fault(place, code::FRONT_MATTER, message, hint)],
        ..Parsed::default()
    };
    let parts = match split(text) {
        Ok(parts) => parts,
        Err(fence) => {
            let message = match fence {
                MissingFence::First => "there is no front matter",
                MissingFence::Second => "the front matter has no end",
            };
            return refused(
                Place::START,
                message,
                "write a line ---, the fields of the Agent, a line ---, and its instructions; a file that is no Agent needs another name, or a line in .convokeignore",
            );
        }
    };
    let mut parsed = parse(parts.head, budget);
    let count = parsed.documents.len() + parsed.faulty.len();
    if count != 1 {
        if parsed.faults.is_empty() {
            let hint = "write the fields of the Agent between the two lines ---";
            let message = if count == 0 {
                "the front matter is empty"
            } else {
                "the front matter holds several documents"
            };
            return refused(Place::START, message, hint);
        }
        // The faults of the YAML are enough.
        return Parsed { faults: parsed.faults, ..Parsed::default() };
    }
    let (document, mut faults) = match parsed.faulty.pop() {
        Some(faulty) => (faulty.document, faulty.faults),
        None => (parsed.documents.pop().unwrap_or_default(), Vec::new()),
    };
    let (document, own) = nest(document, path, &parts, body_bytes);
    faults.extend(own);
    if faults.is_empty() {
        parsed.documents.push(document);
    } else {
        parsed.faulty.push(Faulty { document, faults, in_head: false });
    }
    parsed
}

/// The line `---` that a file lacks.
enum MissingFence {
    First,
    Second,
}

/// Splits a file at the lines `---` around its front matter.
fn split(text: &str) -> Result<Parts<'_>, MissingFence> {
    let is_fence = |line: &str| line.trim_end() == "---";
    let mut offset = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        match (number, is_fence(line)) {
            (0, false) => return Err(MissingFence::First),
            (0, true) | (_, false) => {}
            (_, true) => {
                let (head, rest) = text.split_at(offset);
                let mut body = &rest[line.len()..];
                let mut body_line = number + 2;
                // Without the blank lines around it.
                while let Some((blank, rest)) = body.split_once('\n')
                    && blank.trim().is_empty()
                {
                    (body, body_line) = (rest, body_line + 1);
                }
                return Ok(Parts { head, body: body.trim_end(), body_line });
            }
        }
        offset += line.len();
    }
    Err(if text.is_empty() { MissingFence::First } else { MissingFence::Second })
}

/// The front matter as an Agent in plain form, and what is wrong with it.
fn nest(
    document: Document,
    path: &str,
    parts: &Parts<'_>,
    body_bytes: u64,
) -> (Document, Vec<Fault>) {
    let Value::Object(fields) = document.value else {
        let hint = "write the fields of the Agent, as modelAPI: shared";
        let message = "the front matter holds no fields";
        let fault = fault(document.place(""), code::FRONT_MATTER, message, hint);
        return (Document::default(), vec![fault]);
    };
    let mut agent = PlainAgent {
        metadata: Map::new(),
        spec: Map::new(),
        places: document.places,
        faults: Vec::new(),
    };
    agent.add_fields(fields);
    agent.add_name(path);
    let has_body = !parts.body.is_empty();
    if has_body {
        agent.add_body(parts, body_bytes);
    }
    let PlainAgent { metadata, spec, places, faults } = agent;
    let value = json!({"apiVersion": API_VERSION, "kind": Kind::Agent.as_str(), "metadata": metadata, "spec": spec});
    (Document { value, places, has_body }, faults)
}

/// An Agent in plain form that is made from front matter and body.
struct PlainAgent {
    metadata: Map<String, Value>,
    spec: Map<String, Value>,
    places: Places,
    faults: Vec<Fault>,
}

impl PlainAgent {
    /// Sorts the fields of the front matter into metadata and spec.
    fn add_fields(&mut self, fields: Map<String, Value>) {
        for (key, value) in fields {
            match key.as_str() {
                "apiVersion" | "kind" | "metadata" | "spec" => {
                    let place = self.key_place(&format!("/{key}"));
                    let message = format!("{key} has no place in front matter");
                    let hint = "it is an Agent's: write name, labels, annotations and the fields of its spec side by side";
                    self.faults.push(fault(place, code::FRONT_MATTER, &message, hint));
                }
                "name" | "labels" | "annotations" => {
                    self.metadata.insert(key, value);
                }
                _ => {
                    self.spec.insert(key, value);
                }
            }
        }
        self.places.nest(|key| match key {
            "name" | "labels" | "annotations" => "metadata",
            _ => "spec",
        });
    }

    /// Without a name the Agent is named like its folder.
    fn add_name(&mut self, path: &str) {
        if self.metadata.contains_key("name") {
            return;
        }
        match path.rsplit('/').nth(1) {
            Some(folder) => {
                self.metadata.insert("name".into(), Value::String(folder.to_owned()));
            }
            None => self.faults.push(fault(
                Place::START,
                code::NAME,
                "name is missing",
                "add name, or put the file into a folder of that name",
            )),
        }
    }

    /// The body becomes the instructions.
    fn add_body(&mut self, parts: &Parts<'_>, body_bytes: u64) {
        let config = self.spec.entry("config").or_insert_with(|| Value::Object(Map::new()));
        // The schema reports a config that is no object.
        let Value::Object(config) = config else { return };
        let place = place_at(parts.body_line, 0);
        let field = ["instructions", "instructionsFile"]
            .into_iter()
            .find(|field| config.contains_key(*field));
        let fault = if let Some(field) = field {
            let message = format!("config.{field} and the text below exclude each other");
            let place = self.key_place(&format!("/spec/config/{field}"));
            fault(place, code::FRONT_MATTER, &message, "keep one of the two")
        } else if parts.body.len() as u64 > body_bytes {
            let message = format!("the text is longer than {body_bytes} bytes");
            fault(place, code::BUDGET, &message, "shorten it")
        } else if let Some(Place { line, column }) = nul::first(parts.body) {
            let line = line.saturating_add(place.line) - 1;
            fault(Place { line, column }, code::VALUE, nul::MESSAGE, nul::HINT)
        } else {
            config.insert("instructions".into(), format!("{}\n", parts.body).into());
            self.places.put(BODY, place);
            return;
        };
        self.faults.push(fault);
    }

    /// The place of the key at a JSON pointer.
    fn key_place(&self, pointer: &str) -> Place {
        let (key, value) = self.places.nearest(pointer).unwrap_or_default();
        key.unwrap_or(value)
    }
}

fn fault(place: Place, code: &'static str, message: &str, hint: &str) -> Fault {
    Fault { place, code, message: message.to_owned(), hint: Some(hint.to_owned()) }
}

#[cfg(test)]
#[path = "tests/front_matter.rs"]
mod tests;
