//! The objects of one store, indexed by namespace and name, and by terms.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::{Entry, Key};

/// The terms of an object: texts that it is found by besides its name, such as the uid of its owner.
pub type Terms<V> = fn(&V) -> Vec<String>;

/// The objects of one namespace.
struct Space<V> {
    objects: HashMap<Arc<str>, Arc<Entry<V>>>,
    /// The names of the objects by the hashes of their terms. Two terms may have the same hash, so a lookup compares the terms
    /// of the objects as well.
    index: HashMap<u64, Names>,
}

/// The names of the objects with one term. Most terms have one object: a set for each term would take more memory than all
/// names.
enum Names {
    One(Arc<str>),
    More(BTreeSet<Arc<str>>),
}

impl Names {
    fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        let (one, more) = match self {
            Self::One(name) => (Some(name), None),
            Self::More(names) => (None, Some(names)),
        };
        one.into_iter().chain(more.into_iter().flatten())
    }

    fn insert(&mut self, name: Arc<str>) {
        match self {
            Self::One(have) if *have == name => {}
            Self::One(have) => *self = Self::More([have.clone(), name].into()),
            Self::More(names) => {
                names.insert(name);
            }
        }
    }

    /// Removes a name. Returns whether no name is left.
    fn remove(&mut self, name: &str) -> bool {
        match self {
            Self::One(have) => **have == *name,
            Self::More(names) => {
                names.remove(name);
                names.is_empty()
            }
        }
    }
}

fn hash(term: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    term.hash(&mut hasher);
    hasher.finish()
}

impl<V> Default for Space<V> {
    fn default() -> Self {
        Self { objects: HashMap::new(), index: HashMap::new() }
    }
}

/// The objects of one store.
pub struct Objects<V> {
    spaces: HashMap<Box<str>, Space<V>>,
    terms: Terms<V>,
    count: usize,
}

impl<V> Objects<V> {
    /// No objects. Those that are inserted are found by these terms.
    pub fn new(terms: Terms<V>) -> Self {
        Self { spaces: HashMap::new(), terms, count: 0 }
    }

    /// No objects, with the same terms.
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

    /// Inserts an object. Returns the one that it replaces.
    pub fn insert(&mut self, key: &Key, entry: Arc<Entry<V>>) -> Option<Arc<Entry<V>>> {
        let space = match self.spaces.get_mut(key.namespace.as_str()) {
            Some(space) => space,
            None => self.spaces.entry(key.namespace.as_str().into()).or_default(),
        };
        let new = (self.terms)(&entry.value);
        let name = match space.objects.get_key_value(key.name.as_str()) {
            Some((name, _)) => name.clone(),
            None => key.name.as_str().into(),
        };
        let old = space.objects.insert(name.clone(), entry);
        self.count += usize::from(old.is_none());
        let before = old.as_ref().map(|old| (self.terms)(&old.value)).unwrap_or_default();
        if before != new {
            space.forget_terms(&key.name, before);
            for term in new {
                let names = space.index.entry(hash(&term));
                let names = names.or_insert_with(|| Names::One(name.clone()));
                names.insert(name.clone());
            }
        }
        old
    }

    /// Removes an object. Returns it.
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
        let names = space.index.get(&hash(term)).into_iter().flat_map(Names::iter);
        let objects = names.filter_map(|name| Some((name, space.objects.get(name)?)));
        objects
            .filter(|(_, entry)| (self.terms)(&entry.value).iter().any(|have| have == term))
            .map(|(name, entry)| (Key::new(namespace, &**name), entry.clone()))
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
            let term = hash(&term);
            if self.index.get_mut(&term).is_some_and(|names| names.remove(name)) {
                self.index.remove(&term);
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
