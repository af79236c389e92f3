//! Text to documents: one tree a document, every node with its place, in one pass over the parser's events.
//!
//! YAML 1.2 (so JSON too) without the parts that make two readers see two things: merge keys, custom tags,
//! duplicate keys, ambiguous numbers. A broken document hides no other: parsing goes on at the next `---`.
//! Time and memory are bounded by [`Budget`], whatever the input.

use std::collections::{HashMap, HashSet};

use serde_saphyr::granit_parser::{
    self, ErrorKind, Event, Marker, Options, Parser, ScalarStyle, Tag,
};

use super::diagnostic::{Code, clip};
use super::node::{Data, Entry, Node, Position};
use super::scalar::{self, CoreTag};

/// Bounds of one file, on top of its size in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    /// Documents in a file.
    pub documents: usize,
    /// Collections within collections.
    pub depth: usize,
    /// Nodes of a document, after aliases are expanded.
    pub nodes: usize,
    /// Bytes of a document's scalars, after aliases are expanded.
    pub bytes: usize,
    /// Aliases in a document.
    pub aliases: usize,
}

/// Something wrong at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub at: Position,
    pub code: Code,
    pub message: String,
    pub hint: Option<String>,
}

impl Fault {
    fn new(at: Position, code: Code, message: impl Into<String>, hint: &str) -> Self {
        Self {
            at,
            code,
            message: message.into(),
            hint: (!hint.is_empty()).then(|| hint.to_owned()),
        }
    }
}

/// One document, as far as it could be read.
#[derive(Debug)]
pub(super) struct Document {
    /// The tree; of a document that broke off, what was read until then.
    pub root: Option<Node>,
    /// The document broke off: what follows in it is unknown.
    pub broken: Option<Fault>,
    /// What is wrong inside; the tree lacks those parts.
    pub faults: Vec<Fault>,
    /// A fault touches the keys of the outermost object, so `apiVersion` and `kind` cannot be trusted.
    pub root_in_doubt: bool,
}

/// The documents of a file that are not empty, and what is wrong with the file as a whole.
pub(super) fn parse(text: &str, budget: Budget) -> (Vec<Document>, Option<Fault>) {
    let mut options = Options::default();
    options.emit_comments = false;
    options.emit_unresolved_aliases = true;
    options.flow_nesting_limit = budget.depth;
    options.block_nesting_limit = budget.depth;
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut documents = Vec::new();
    let mut builder = Builder::new(budget);
    let mut started = 0_usize;
    loop {
        let fault = match parser.next() {
            None => break,
            Some(Ok((event, span))) => match event {
                Event::DocumentStart(..) => {
                    started += 1;
                    if started > budget.documents {
                        let message =
                            format!("the file holds more than {} documents", budget.documents);
                        let hint = "split the file";
                        return (
                            documents,
                            Some(Fault::new(
                                place(&span.start),
                                Code::TooManyDocuments,
                                message,
                                hint,
                            )),
                        );
                    }
                    builder = Builder::new(budget);
                    continue;
                }
                Event::DocumentEnd => {
                    let done = std::mem::replace(&mut builder, Builder::new(budget));
                    documents.extend(done.finish(None));
                    continue;
                }
                event => match builder.event(event, place(&span.start)) {
                    Ok(()) => continue,
                    Err(fault) => fault,
                },
            },
            Some(Err(error)) => syntax_fault(&error, budget),
        };
        let done = std::mem::replace(&mut builder, Builder::new(budget));
        documents.extend(done.finish(Some(fault)));
        match parser.proceed_next_document() {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return (documents, Some(syntax_fault(&error, budget))),
        }
        // A document that breaks before its start event counts too, so that this loop ends.
        started += 1;
        if started > budget.documents.saturating_mul(2) {
            let at = Position::START;
            return (
                documents,
                Some(Fault::new(at, Code::TooManyDocuments, "too many broken documents", "")),
            );
        }
    }
    (documents, None)
}

/// Parser columns count from 0, ours from 1.
fn place(marker: &Marker) -> Position {
    let line = u32::try_from(marker.line()).unwrap_or(u32::MAX).max(1);
    let column = u32::try_from(marker.col()).unwrap_or(u32::MAX).saturating_add(1);
    Position { line, column }
}

fn syntax_fault(error: &granit_parser::ScanError, budget: Budget) -> Fault {
    let at = place(error.marker());
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => too_deep(at, budget),
        kind => {
            // These texts are the parser's own; they quote at most one bracket or character.
            let message = format!("not valid YAML: {}", clip(&kind.to_string()));
            let hint = match kind {
                ErrorKind::TabNotAllowed
                | ErrorKind::TabInBlockIndentation
                | ErrorKind::TabInIndentation
                | ErrorKind::TabInPlainScalar
                | ErrorKind::TabAtBlockScalarStart => "indent with spaces",
                ErrorKind::MappingValueNotAllowed => {
                    "check the indentation of this line; a value that contains \": \" needs quotes"
                }
                ErrorKind::SimpleKeyExpected => "a key is followed by \": \"",
                _ => "",
            };
            Fault::new(at, Code::Syntax, message, hint)
        }
    }
}

fn too_deep(at: Position, budget: Budget) -> Fault {
    Fault::new(at, Code::YamlBudget, format!("nested deeper than {} levels", budget.depth), "")
}

/// What a subtree costs.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    nodes: usize,
    bytes: usize,
    depth: usize,
}

/// A collection that is being read.
struct Frame {
    at: Position,
    anchor: usize,
    cost: Cost,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, seen: HashSet<String>, key: Option<Key> },
}

/// A key that waits for its value.
struct Key {
    name: String,
    at: Position,
    /// The key is refused; its value is read and dropped.
    refused: bool,
}

/// Builds one document.
struct Builder {
    budget: Budget,
    stack: Vec<Frame>,
    root: Option<Node>,
    anchors: HashMap<usize, (Node, Cost)>,
    aliases: usize,
    nodes: usize,
    bytes: usize,
    faults: Vec<Fault>,
    root_in_doubt: bool,
}

impl Builder {
    fn new(budget: Budget) -> Self {
        Self {
            budget,
            stack: Vec::new(),
            root: None,
            anchors: HashMap::new(),
            aliases: 0,
            nodes: 0,
            bytes: 0,
            faults: Vec::new(),
            root_in_doubt: false,
        }
    }

    /// The document, unless it is empty. Open collections are closed as they are.
    fn finish(mut self, broken: Option<Fault>) -> Option<Document> {
        while let Some(frame) = self.stack.pop() {
            let (node, cost) = (frame.into_node(), Cost::default());
            self.attach(node, cost);
        }
        let empty = self.root.as_ref().is_none_or(Node::is_null);
        if empty && broken.is_none() && self.faults.is_empty() {
            return None;
        }
        Some(Document {
            root: self.root,
            broken,
            faults: self.faults,
            root_in_doubt: self.root_in_doubt,
        })
    }

    fn fault(&mut self, at: Position, code: Code, message: impl Into<String>, hint: &str) {
        // Depth 1 is the outermost object: a fault among its keys may hide what the document is.
        self.root_in_doubt |= self.stack.len() <= 1;
        self.faults.push(Fault::new(at, code, message, hint));
    }

    fn event(&mut self, event: Event<'_>, at: Position) -> Result<(), Fault> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.scalar(&text, style, anchor, tag.as_deref(), at)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.collection_tag(tag.as_deref(), "seq", at);
                self.open(at, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.collection_tag(tag.as_deref(), "map", at);
                self.open(
                    at,
                    anchor,
                    Content::Map { entries: Vec::new(), seen: HashSet::new(), key: None },
                )
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(frame) = self.stack.pop() {
                    let (anchor, mut cost) = (frame.anchor, frame.cost);
                    cost.depth += 1;
                    let node = frame.into_node();
                    self.keep_anchor(anchor, &node, cost, at)?;
                    self.attach(node, cost);
                }
                Ok(())
            }
            Event::Alias(id) => self.alias(id, at),
            Event::UnresolvedAlias(name) => {
                let message = format!("the alias `*{}` names no anchor before it", clip(&name));
                self.fault(
                    at,
                    Code::Alias,
                    message,
                    "anchors (`&name`) hold within one document only",
                );
                self.place_unknown(at)
            }
            _ => Ok(()),
        }
    }

    fn spend(&mut self, nodes: usize, bytes: usize, at: Position) -> Result<(), Fault> {
        self.nodes = self.nodes.saturating_add(nodes);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.nodes > self.budget.nodes {
            let message = format!("the document grows beyond {} nodes", self.budget.nodes);
            return Err(Fault::new(
                at,
                Code::YamlBudget,
                message,
                "split it, or use fewer aliases",
            ));
        }
        if self.bytes > self.budget.bytes {
            let message = format!("the document grows beyond {} bytes of text", self.budget.bytes);
            return Err(Fault::new(
                at,
                Code::YamlBudget,
                message,
                "split it, or use fewer aliases",
            ));
        }
        Ok(())
    }

    fn open(&mut self, at: Position, anchor: usize, content: Content) -> Result<(), Fault> {
        self.spend(1, 0, at)?;
        if self.expects_key() {
            return Err(Fault::new(at, Code::Key, "a key must be a plain name", ""));
        }
        if self.stack.len() >= self.budget.depth {
            return Err(too_deep(at, self.budget));
        }
        self.stack.push(Frame { at, anchor, cost: Cost { nodes: 1, ..Cost::default() }, content });
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(self.stack.last(), Some(Frame { content: Content::Map { key: None, .. }, .. }))
    }

    fn set_key(&mut self, new: Key) {
        if let Some(Frame { content: Content::Map { key, .. }, .. }) = self.stack.last_mut() {
            *key = Some(new);
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        at: Position,
    ) -> Result<(), Fault> {
        self.spend(1, text.len(), at)?;
        let plain = style == ScalarStyle::Plain;
        if self.expects_key() {
            if tag.is_some() {
                self.fault(at, Code::Tag, "a key cannot have a tag", "remove the tag");
            }
            let cost = Cost { nodes: 1, bytes: text.len(), depth: 0 };
            self.keep_anchor(anchor, &Node { at, data: Data::String(text.to_owned()) }, cost, at)?;
            self.key(text, plain, at);
            return Ok(());
        }
        let core_type = tag.and_then(Tag::core_suffix);
        let data = match (tag, core_type) {
            (None, _) if plain => scalar::resolve(text, None),
            (None, _) | (Some(_), Some("str")) => Ok(Data::String(text.to_owned())),
            (Some(_), Some("int")) => scalar::resolve(text, Some(CoreTag::Int)),
            (Some(_), Some("float")) => scalar::resolve(text, Some(CoreTag::Float)),
            (Some(_), Some("bool")) => scalar::resolve(text, Some(CoreTag::Bool)),
            (Some(_), Some("null")) => scalar::resolve(text, Some(CoreTag::Null)),
            (Some(tag), _) => {
                self.custom_tag(tag, at);
                Ok(Data::Unknown)
            }
        };
        let data = match data {
            Ok(data) => data,
            Err((code, message, hint)) => {
                self.fault(at, code, message, hint);
                Data::Unknown
            }
        };
        let cost = Cost { nodes: 1, bytes: text.len(), depth: 0 };
        let node = Node { at, data };
        self.keep_anchor(anchor, &node, cost, at)?;
        self.attach(node, cost);
        Ok(())
    }

    fn place_unknown(&mut self, at: Position) -> Result<(), Fault> {
        self.spend(1, 0, at)?;
        if self.expects_key() {
            self.set_key(Key { name: String::new(), at, refused: true });
        } else {
            self.attach(Node { at, data: Data::Unknown }, Cost { nodes: 1, ..Cost::default() });
        }
        Ok(())
    }

    fn key(&mut self, name: &str, plain: bool, at: Position) {
        let mut refused = false;
        if plain && name == "<<" {
            self.fault(
                at,
                Code::MergeKey,
                "merge keys (`<<`) are not supported",
                "write the fields out",
            );
            refused = true;
        } else if let Some(Frame { content: Content::Map { seen, .. }, .. }) = self.stack.last_mut()
            && !seen.insert(name.to_owned())
        {
            refused = true;
            let message = format!("the key `{}` is given twice", clip(name));
            self.fault(at, Code::DuplicateKey, message, "remove one of the two");
        }
        self.set_key(Key { name: name.to_owned(), at, refused });
    }

    fn custom_tag(&mut self, tag: &Tag, at: Position) {
        let message = format!("the tag `{}` is not supported", clip(&tag.original()));
        self.fault(
            at,
            Code::Tag,
            message,
            "write the value itself; nothing is included or computed",
        );
    }

    fn collection_tag(&mut self, tag: Option<&Tag>, expected: &str, at: Position) {
        if let Some(tag) = tag.filter(|tag| tag.core_suffix() != Some(expected)) {
            self.custom_tag(tag, at);
        }
    }

    /// Remembers an anchored node. The copy is paid for like any other node.
    fn keep_anchor(
        &mut self,
        anchor: usize,
        node: &Node,
        cost: Cost,
        at: Position,
    ) -> Result<(), Fault> {
        if anchor != 0 {
            self.spend(cost.nodes, cost.bytes, at)?;
            self.anchors.insert(anchor, (node.clone(), cost));
        }
        Ok(())
    }

    fn alias(&mut self, id: usize, at: Position) -> Result<(), Fault> {
        self.aliases += 1;
        if self.aliases > self.budget.aliases {
            let message = format!("the document uses more than {} aliases", self.budget.aliases);
            return Err(Fault::new(at, Code::YamlBudget, message, ""));
        }
        if self.expects_key() {
            self.fault(at, Code::Key, "a key cannot be an alias", "write the key out");
            return self.place_unknown(at);
        }
        let Some(cost) = self.anchors.get(&id).map(|(_, cost)| *cost) else {
            self.fault(at, Code::Alias, "the alias contains itself", "");
            return self.place_unknown(at);
        };
        self.spend(cost.nodes, cost.bytes, at)?;
        if self.stack.len() + cost.depth > self.budget.depth {
            return Err(too_deep(at, self.budget));
        }
        if let Some((node, _)) = self.anchors.get(&id) {
            // The outermost node stands where the alias is; what is in it stays where it was written.
            let node = Node { at, data: node.data.clone() };
            self.attach(node, cost);
        }
        Ok(())
    }

    /// Puts a finished node into the open collection, or makes it the root.
    fn attach(&mut self, node: Node, cost: Cost) {
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return;
        };
        frame.cost.nodes += cost.nodes;
        frame.cost.bytes += cost.bytes;
        frame.cost.depth = frame.cost.depth.max(cost.depth);
        match &mut frame.content {
            Content::List(items) => items.push(node),
            Content::Map { entries, key, .. } => {
                if let Some(Key { name, at, refused: false }) = key.take() {
                    frame.cost.bytes += name.len();
                    entries.push(Entry { key: name, key_at: at, value: node });
                }
            }
        }
    }
}

impl Frame {
    fn into_node(self) -> Node {
        let data = match self.content {
            Content::List(items) => Data::List(items),
            Content::Map { entries, .. } => Data::Map(entries),
        };
        Node { at: self.at, data }
    }
}
