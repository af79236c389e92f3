//! `agent.md`: an Agent as a Markdown file. Its front matter holds the fields of the spec, beside `name`,
//! `labels` and `annotations`; the text below is its instructions.

use serde_json::{Map, Value, json};

use super::diagnostic::code;
use super::document::{Budget, Document, Fault, Faulty, Parsed, Place, at, parse};
use super::nul;
use crate::api::{API_VERSION, Kind};

/// Name of the files that are read so, in any case: one that is renamed to AGENT.md must not take its Agent with it in
/// silence.
const FILE: &str = "agent.md";

/// Where the body goes.
pub(super) const BODY: &str = "/spec/config/instructions";

/// Whether the file at this path is an Agent in Markdown.
pub(super) fn is_agent_file(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.eq_ignore_ascii_case(FILE))
}

/// The parts of a file, as offsets.
struct Parts<'a> {
    /// With the line that opens it, so that its places are those of the file.
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
        Err(unopened) => {
            let message =
                if unopened { "there is no front matter" } else { "the front matter has no end" };
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
        // What YAML says of it is enough.
        return Parsed { faults: parsed.faults, ..Parsed::default() };
    }
    let (document, mut faults) = match parsed.faulty.pop() {
        Some(faulty) => (faulty.document, faulty.faults),
        None => (parsed.documents.pop().unwrap_or_default(), Vec::new()),
    };
    let document = nest(document, path, &parts, body_bytes, &mut faults);
    if faults.is_empty() {
        parsed.documents.push(document);
    } else {
        parsed.faulty.push(Faulty { document, faults, in_head: false });
    }
    parsed
}

/// The parts of a text. The error says whether nothing opens the front matter; otherwise nothing closes it.
fn split(text: &str) -> Result<Parts<'_>, bool> {
    let is_fence = |line: &str| line.trim_end() == "---";
    let mut offset = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        match (number, is_fence(line)) {
            (0, false) => return Err(true),
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
    Err(text.is_empty())
}

/// The front matter as an Agent in plain form.
fn nest(
    document: Document,
    path: &str,
    parts: &Parts<'_>,
    body_bytes: u64,
    faults: &mut Vec<Fault>,
) -> Document {
    let Value::Object(fields) = document.value else {
        let hint = "write the fields of the Agent, as modelAPI: shared";
        faults.push(fault(
            document.place(""),
            code::FRONT_MATTER,
            "the front matter holds no fields",
            hint,
        ));
        return Document::default();
    };
    let (mut metadata, mut spec) = (Map::new(), Map::new());
    let mut places = document.places;
    for (key, value) in fields {
        match key.as_str() {
            "apiVersion" | "kind" | "metadata" | "spec" => {
                let (on_key, value) = places.nearest(&format!("/{key}")).unwrap_or_default();
                faults.push(fault(
                    on_key.unwrap_or(value),
                    code::FRONT_MATTER,
                    &format!("{key} has no place in front matter"),
                    "it is an Agent's: write name, labels, annotations and the fields of its spec side by side",
                ));
            }
            "name" | "labels" | "annotations" => {
                metadata.insert(key, value);
            }
            _ => {
                spec.insert(key, value);
            }
        }
    }
    places.nest(|key| match key {
        "name" | "labels" | "annotations" => "metadata",
        _ => "spec",
    });
    if !metadata.contains_key("name") {
        let folder = path.rsplit('/').nth(1);
        match folder {
            Some(folder) => {
                metadata.insert("name".into(), Value::String(folder.to_owned()));
            }
            None => faults.push(fault(
                Place::START,
                code::NAME,
                "name is missing",
                "add name, or put the file into a folder of that name",
            )),
        }
    }
    let body = !parts.body.is_empty();
    if body {
        let place = at(parts.body_line, 0);
        let config = spec.entry("config").or_insert_with(|| Value::Object(Map::new()));
        // A config that is no object is told by the schema.
        if let Value::Object(config) = config {
            let twice = ["instructions", "instructionsFile"]
                .into_iter()
                .find(|field| config.contains_key(*field));
            if let Some(field) = twice {
                let (key, value) =
                    places.nearest(&format!("/spec/config/{field}")).unwrap_or_default();
                let message = format!("config.{field} and the text below exclude each other");
                let at = key.unwrap_or(value);
                faults.push(fault(at, code::FRONT_MATTER, &message, "keep one of the two"));
            } else if parts.body.len() as u64 > body_bytes {
                let message = format!("the text is longer than {body_bytes} bytes");
                faults.push(fault(place, code::BUDGET, &message, "shorten it"));
            } else if let Some(Place { line, column }) = nul::first(parts.body) {
                let line = line.saturating_add(place.line) - 1;
                let place = Place { line, column };
                faults.push(fault(place, code::VALUE, nul::MESSAGE, nul::HINT));
            } else {
                config.insert("instructions".into(), format!("{}\n", parts.body).into());
                places.put(BODY, place);
            }
        }
    }
    let value = json!({"apiVersion": API_VERSION, "kind": Kind::Agent.as_str(), "metadata": metadata, "spec": spec});
    Document { value, places, has_body: body }
}

fn fault(place: Place, code: &'static str, message: &str, hint: &str) -> Fault {
    Fault { place, code, message: message.to_owned(), hint: Some(hint.to_owned()) }
}

#[cfg(test)]
#[path = "front_matter_tests.rs"]
mod tests;
