//! A small Git: files with definitions, folders that are followed by one GitSync each, and what a loader makes of
//! them.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::json;

use crate::api::git_sync::{Problem, Severity};
use crate::api::{Kind, ObjectId};
use crate::definition::references::Reference;
use crate::definition::{Catalog, Definition, Offers};
use crate::packed::{Family, Pairs};

/// The folders that GitSyncs follow.
pub const FOLDERS: [&str; 3] = ["m/", "o/", "t/"];
/// The names of objects: the later ones are Agents.
pub const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "x", "y", "z"];

/// An error of a whole commit.
pub fn wrong() -> Problem {
    Problem {
        severity: Severity::Error,
        path: None,
        line: None,
        column: None,
        code: "CVK0101".into(),
        message: "something is wrong".into(),
        hint: None,
        object: None,
    }
}

/// The object of a name.
pub fn id(name: &str) -> ObjectId {
    ObjectId::new(if name >= "x" { Kind::Agent } else { Kind::ModelAPI }, name)
}

/// The spec of an object by its content.
pub fn spec(id: &ObjectId, content: usize) -> serde_json::Value {
    match id.kind {
        // In canonical form: as the types write it.
        Kind::Agent => json!({
            "description": content.to_string(), "modelAPI": {"name": NAMES[content % 6]},
            "suspend": false, "waitForDependencies": true,
        }),
        _ => json!({"mode": "External", "external": {"url": format!("https://{content}.example")}}),
    }
}

/// The labels of an object by its content.
pub fn labels(content: usize) -> BTreeMap<String, String> {
    (content % 2 == 1).then(|| ("odd".to_owned(), "yes".to_owned())).into_iter().collect()
}

/// What is wrong with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Health {
    /// Nothing.
    #[default]
    Good,
    /// Something that leaves its identities legible.
    Named,
    /// Nobody can tell what is in it.
    Unknown,
}

/// What the author of a file means; a file that is broken hides it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct File {
    /// Its objects and their contents.
    pub objects: BTreeMap<ObjectId, usize>,
    /// Whether others can read it.
    pub health: Health,
}

/// The files of one commit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    /// By path.
    pub files: BTreeMap<String, File>,
}

impl Tree {
    /// Puts an object into a file, whatever else defines it.
    pub fn put(&mut self, path: &str, id: ObjectId, content: usize) {
        self.files.entry(path.to_owned()).or_default().objects.insert(id, content);
    }

    /// Takes an object out of all files.
    pub fn remove(&mut self, id: &ObjectId) {
        for file in self.files.values_mut() {
            file.objects.remove(id);
        }
    }

    /// The files of a folder.
    pub fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a String, &'a File)> {
        let all = self.files.range::<str, _>((Bound::Included(folder), Bound::Unbounded));
        all.take_while(move |(path, _)| path.starts_with(folder))
    }

    /// The file of a folder that holds an object.
    pub fn file_of<'a>(&'a self, folder: &'a str, id: &ObjectId) -> Option<(&'a String, &'a File)> {
        self.below(folder).find(|(_, file)| file.objects.contains_key(id))
    }

    /// Whether a folder means an object, however its file looks.
    pub fn means(&self, folder: &str, id: &ObjectId) -> bool {
        self.file_of(folder, id).is_some()
    }

    /// What a folder says an object is, if that can be read.
    pub fn content(&self, folder: &str, id: &ObjectId) -> Option<usize> {
        let mut good = self.below(folder).filter(|(_, file)| file.health == Health::Good);
        good.find_map(|(_, file)| file.objects.get(id).copied())
    }

    /// A folder without definitions is an error: each has one of its own that nobody touches.
    pub fn keep_company(&mut self) {
        for folder in FOLDERS {
            self.put(
                &format!("{folder}k.yaml"),
                ObjectId::new(Kind::ModelAPI, format!("k{}", &folder[..1])),
                0,
            );
        }
    }

    /// Mends everything: every file is good, and no folder says anything twice.
    pub fn mend(&mut self) {
        for folder in FOLDERS {
            let mut seen = std::collections::BTreeSet::new();
            for (path, file) in &mut self.files {
                if path.starts_with(folder) {
                    file.health = Health::Good;
                    file.objects.retain(|id, _| seen.insert(id.clone()));
                }
            }
        }
        self.files.retain(|_, file| !file.objects.is_empty());
        self.keep_company();
    }
}

/// Keeps definitions that did not change, as a loader does.
#[derive(Default)]
pub struct Definitions(HashMap<(ObjectId, String, usize), Arc<Definition>>);

impl Definitions {
    pub fn get(&mut self, id: &ObjectId, path: &str, content: usize) -> Arc<Definition> {
        let fresh = || {
            let spec = spec(id, content);
            let reference =
                |to: ObjectId, field| Reference { to, field, line: 1, column: 1, model: None };
            let references = match id.kind {
                Kind::Agent => vec![
                    reference(ObjectId::new(Kind::ModelAPI, NAMES[content % 6]), "modelAPI"),
                    reference(ObjectId::new(Kind::Agent, NAMES[6 + content % 3]), "agentNetwork"),
                ],
                _ => Vec::new(),
            };
            Arc::new(Definition {
                id: id.clone(),
                path: path.to_owned(),
                line: 1,
                column: 1,
                labels: Pairs::of(Some(&labels(content))),
                annotations: Pairs::of(Some(&labels(content / 2))),
                canonical_spec: Family::new().pack(&spec),
                spec: Family::new().pack(&spec),
                offers: Offers::default(),
                references,
            })
        };
        self.0.entry((id.clone(), path.to_owned(), content)).or_insert_with(fresh).clone()
    }

    /// What a loader makes of a folder.
    pub fn catalog(&mut self, tree: &Tree, folder: &str) -> Catalog {
        let mut catalog = Catalog::default();
        let mut found: BTreeMap<ObjectId, Vec<Arc<Definition>>> = BTreeMap::new();
        let mut faulty = false;
        for (path, File { objects, health }) in tree.below(folder) {
            faulty |= *health != Health::Good;
            for (id, content) in objects {
                match health {
                    Health::Good => {
                        found.entry(id.clone()).or_default().push(self.get(id, path, *content));
                    }
                    Health::Named => drop(catalog.broken.insert(id.clone(), path.clone())),
                    Health::Unknown => {}
                }
            }
            if *health == Health::Unknown {
                catalog.broken_paths.insert(path.clone());
            }
        }
        if !catalog.broken_paths.is_empty() {
            catalog.paths = tree.below(folder).map(|(path, _)| path.clone()).collect();
        }
        for (id, definitions) in found {
            match definitions.as_slice() {
                [one] if !catalog.broken.contains_key(&id) => {
                    catalog.definitions.insert(id, one.clone());
                }
                several => {
                    faulty = true;
                    catalog.broken.insert(id, several[0].path.clone());
                }
            }
        }
        if faulty || tree.below(folder).all(|(_, file)| file.objects.is_empty()) {
            catalog.problems.push(wrong());
        }
        catalog
    }
}
