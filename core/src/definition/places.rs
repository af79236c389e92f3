//! Where the nodes of a document are: a tree, so that a long key is kept once and not in every pointer below it.

use std::collections::{HashMap, HashSet};

use super::document::Place;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Places {
    /// Of the key (if it is a mapping's) and of the value. The first one is the root's.
    pub(super) nodes: Vec<(Option<Place>, Place)>,
    /// A node, and the key or index below it.
    pub(super) children: HashMap<(usize, String), usize>,
    /// Scalars without quotes that could be a variable.
    plain: HashSet<usize>,
    /// Aliases, and what they stand for: an earlier node.
    same: HashMap<usize, usize>,
}

impl Places {
    /// Notes a node below another one, or the root.
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

    /// Notes that the scalar at a node has no quotes, and could be a variable.
    pub fn note_plain(&mut self, node: usize) {
        self.plain.insert(node);
    }

    /// Notes that a node is an alias of another one.
    pub fn note_alias(&mut self, node: usize, of: usize) {
        self.same.insert(node, of);
    }

    /// Whether the value at a JSON pointer was noted as plain, be it by way of an alias.
    pub fn is_plain(&self, pointer: &str) -> bool {
        // An alias stands for an earlier node, which may be an alias in turn.
        let behind = |mut node: usize| {
            while let Some(of) = self.same.get(&node).filter(|of| **of < node) {
                node = *of;
            }
            node
        };
        let mut node = 0;
        for part in parts(pointer) {
            match self.children.get(&(behind(node), part)) {
                Some(child) => node = *child,
                None => return false,
            }
        }
        self.plain.contains(&behind(node))
    }

    /// Hangs the nodes of the root below new ones: `to` gives for each key of the root the key that it goes below.
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

    /// Notes the place of a value that is not in the text where its pointer says.
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
