//! The objects of one store: by namespace and name, and by the terms that they are looked up with.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{Entry, Key};

/// The terms of an object: what it is found by besides its name, as the uid of its owner.
pub type Terms<V> = fn(&V) -> Vec<String>;

/// The objects of one namespace.
struct Space<V> {
    objects: HashMap<Box<str>, Arc<Entry<V>>>,
    /// Term → names.
    index: HashMap<Box<str>, BTreeSet<Box<str>>>,
}

impl<V> Default for Space<V> {
    fn default() -> Self {
        Self { objects: HashMap::new(), index: HashMap::new() }
    }
}

/// See the module.
pub struct Objects<V> {
    spaces: HashMap<Box<str>, Space<V>>,
    terms: Terms<V>,
    count: usize,
}

impl<V> Objects<V> {
    /// No objects; they will be found by these terms.
    pub fn new(terms: Terms<V>) -> Self {
        Self { spaces: HashMap::new(), terms, count: 0 }
    }

    /// An empty one of the same sort.
    pub fn empty(&self) -> Self {
        Self::new(self.terms)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<&Arc<Entry<V>>> {
        self.spaces.get(key.namespace.as_str())?.objects.get(key.name.as_str())
    }

    /// Puts an object in its place; gives what was there.
    pub fn insert(&mut self, key: &Key, entry: Arc<Entry<V>>) -> Option<Arc<Entry<V>>> {
        let space = match self.spaces.get_mut(key.namespace.as_str()) {
            Some(space) => space,
            None => self.spaces.entry(key.namespace.as_str().into()).or_default(),
        };
        let new = (self.terms)(&entry.value);
        let old = if let Some(place) = space.objects.get_mut(key.name.as_str()) {
            Some(std::mem::replace(place, entry))
        } else {
            self.count += 1;
            space.objects.insert(key.name.as_str().into(), entry)
        };
        let before = old.as_ref().map(|old| (self.terms)(&old.value)).unwrap_or_default();
        if before != new {
            space.forget_terms(&key.name, before);
            for term in new {
                space.index.entry(term.into()).or_default().insert(key.name.as_str().into());
            }
        }
        old
    }

    /// Takes an object out.
    pub fn remove(&mut self, key: &Key) -> Option<Arc<Entry<V>>> {
        let space = self.spaces.get_mut(key.namespace.as_str())?;
        let old = space.objects.remove(key.name.as_str())?;
        space.forget_terms(&key.name, (self.terms)(&old.value));
        self.count -= 1;
        if space.objects.is_empty() {
            self.spaces.remove(key.namespace.as_str());
        }
        Some(old)
    }

    /// The objects of one namespace, in no order.
    pub fn of(&self, namespace: &str) -> impl Iterator<Item = (&str, &Arc<Entry<V>>)> {
        let space = self.spaces.get(namespace);
        space.into_iter().flat_map(|space| space.objects.iter().map(|(name, e)| (&**name, e)))
    }

    /// The objects of one namespace that have this term, by name.
    pub fn found(&self, namespace: &str, term: &str) -> Vec<(Key, Arc<Entry<V>>)> {
        let Some(space) = self.spaces.get(namespace) else { return Vec::new() };
        let names = space.index.get(term).into_iter().flatten();
        names
            .filter_map(|name| {
                Some((Key::new(namespace, &**name), space.objects.get(name)?.clone()))
            })
            .collect()
    }

    /// All objects, in no order.
    pub fn all(&self) -> impl Iterator<Item = (Key, &Arc<Entry<V>>)> {
        self.spaces.iter().flat_map(|(namespace, space)| {
            space.objects.iter().map(|(name, entry)| (Key::new(&**namespace, &**name), entry))
        })
    }
}

impl<V> Space<V> {
    fn forget_terms(&mut self, name: &str, terms: Vec<String>) {
        for term in terms {
            if let Some(names) = self.index.get_mut(term.as_str()) {
                names.remove(name);
                if names.is_empty() {
                    self.index.remove(term.as_str());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_by_their_newest_terms() {
        let mut objects = Objects::<Vec<String>>::new(Clone::clone);
        let put = |objects: &mut Objects<_>, namespace: &str, name: &str, terms: &[&str]| {
            let value = terms.iter().map(ToString::to_string).collect();
            let entry = Entry { uid: name.to_owned(), version: 1, value };
            objects.insert(&Key::new(namespace, name), Arc::new(entry));
        };
        let found = |objects: &Objects<Vec<String>>, term: &str| -> Vec<String> {
            objects.found("n", term).into_iter().map(|(key, _)| key.name).collect()
        };
        put(&mut objects, "n", "b", &["x"]);
        put(&mut objects, "n", "a", &["x", "y"]);
        put(&mut objects, "other", "c", &["x"]);
        assert_eq!((found(&objects, "x"), objects.len()), (vec!["a".into(), "b".into()], 3));
        put(&mut objects, "n", "a", &["y"]);
        assert_eq!((found(&objects, "x"), objects.len()), (vec!["b".to_owned()], 3));
        objects.remove(&Key::new("n", "b"));
        assert!(found(&objects, "x").is_empty() && objects.len() == 2);
        assert_eq!(found(&objects, "y"), ["a"]);
        objects.remove(&Key::new("n", "a"));
        assert!(objects.spaces.len() == 1, "an empty namespace is forgotten");
    }
}
