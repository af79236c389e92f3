//! Places in a file, and the places of the nodes of a document.

use std::collections::{HashMap, HashSet};

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

/// A place from a line (from 1) and a column (from 0).
pub(super) fn place_at(line: usize, column_from_zero: usize) -> Place {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Place { line: number(line.max(1)), column: number(column_from_zero + 1) }
}

/// The place of the character at this index of a text.
pub(super) fn place_of_index(text: &str, index: usize) -> Place {
    let before = &text[..index];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count());
    place_at(line, column)
}

/// The places of all nodes of a document, as a tree: a long key is kept once, and not in the pointer of every node below it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Places {
    /// For each node, the places of its key (in a mapping) and of its value. The root is the first node.
    pub(super) nodes: Vec<(Option<Place>, Place)>,
    /// The child of a node at a key or index.
    pub(super) children: HashMap<(usize, String), usize>,
    /// Scalars without quotes that could be a variable.
    plain: HashSet<usize>,
    /// For each alias, the node that it stands for. It is an earlier one.
    alias_of: HashMap<usize, usize>,
}

impl Places {
    /// Adds a node below another one, or the root.
    pub fn note(
        &mut self,
        below: Option<(usize, String)>,
        key: Option<Place>,
        value: Place,
    ) -> usize {
        let node = self.nodes.len();
        self.nodes.push((key, value));
        if let Some(below) = below {
            self.children.insert(below, node);
        }
        node
    }

    /// The node at a JSON pointer, or the nearest one around it.
    pub fn nearest(&self, pointer: &str) -> Option<(Option<Place>, Place)> {
        let mut node = 0;
        for part in parts(pointer) {
            match self.children.get(&(node, part)) {
                Some(child) => node = *child,
                None => break,
            }
        }
        self.nodes.get(node).copied()
    }

    /// Marks the scalar at a node as one without quotes that could be a variable.
    pub fn note_plain(&mut self, node: usize) {
        self.plain.insert(node);
    }

    /// Marks a node as an alias of another one.
    pub fn note_alias(&mut self, node: usize, of: usize) {
        self.alias_of.insert(node, of);
    }

    /// Whether the value at a JSON pointer was marked with [`Self::note_plain`], or is an alias of such a value.
    pub fn is_plain(&self, pointer: &str) -> bool {
        // An alias stands for an earlier node, which may be an alias in turn.
        let resolved = |mut node: usize| {
            while let Some(of) = self.alias_of.get(&node).filter(|of| **of < node) {
                node = *of;
            }
            node
        };
        let mut node = 0;
        for part in parts(pointer) {
            match self.children.get(&(resolved(node), part)) {
                Some(child) => node = *child,
                None => return false,
            }
        }
        self.plain.contains(&resolved(node))
    }

    /// Moves the nodes below the root one level down: `to` gives, for each key of the root, the key of its new parent.
    pub fn nest(&mut self, to: impl Fn(&str) -> &'static str) {
        let Some(root) = self.nodes.first().copied() else { return };
        let (own, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.children).into_iter().partition(|((node, _), _)| *node == 0);
        self.children = rest.into_iter().collect();
        let mut parents = HashMap::new();
        for ((_, key), child) in own {
            let parent = to(&key);
            let node = *parents.entry(parent).or_insert_with(|| {
                self.nodes.push(root);
                self.children.insert((0, parent.to_owned()), self.nodes.len() - 1);
                self.nodes.len() - 1
            });
            self.children.insert((node, key), child);
        }
    }

    /// Sets the place of a value that stands elsewhere in the text than its pointer says.
    pub fn put(&mut self, pointer: &str, place: Place) {
        let mut node = 0;
        for part in parts(pointer) {
            let below = (node, part);
            node = match self.children.get(&below) {
                Some(child) => *child,
                None => self.note(Some(below), None, place),
            };
        }
    }
}

/// The keys and indices of a JSON pointer.
fn parts(pointer: &str) -> impl Iterator<Item = String> + '_ {
    pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"))
}

/// A key as one part of a JSON pointer.
pub(super) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
