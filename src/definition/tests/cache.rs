//! Work follows what changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::definition::tree::{RepositoryTree, TreeEntry, TreeError, TreeProblem};

use super::*;

fn tree() -> MemoryTree {
    MemoryTree::new()
        .file("a.yaml", agent("one", "  config: {instructionsFile: p.md}\n"))
        .file("b.yaml", agent("two", ""))
        .file("bad.yaml", agent("three", "  x: 1\n"))
        .file("p.md", "first")
}

#[test]
fn an_unchanged_tree_is_not_parsed_again() {
    let mut loader = Loader::new(Limits::default());
    let first = loader.load(&tree(), Some(NAMESPACE));
    assert_eq!(loader.parsed_files(), 3);
    let second = loader.load(&tree(), Some(NAMESPACE));
    assert_eq!(loader.parsed_files(), 3);
    assert_eq!(shown(&first), shown(&second));
    assert_eq!(first.broken, second.broken);
    assert_eq!(first.broken_paths, second.broken_paths);
    assert_eq!((first.documents, first.files), (second.documents, second.files));
    for (id, definition) in &first.definitions {
        assert!(Arc::ptr_eq(definition, &second.definitions[id]));
    }
}

#[test]
fn one_change_parses_one_file() {
    let mut loader = Loader::new(Limits::default());
    loader.load(&tree(), Some(NAMESPACE));
    // Its own content.
    let catalog = loader.load(&tree().file("b.yaml", agent("four", "")), Some(NAMESPACE));
    assert_eq!(
        (loader.parsed_files(), names(&catalog)),
        (4, vec!["Agent/four".into(), "Agent/one".into()])
    );
    // An included file.
    loader.load(&tree().file("b.yaml", agent("four", "")).file("p.md", "second"), Some(NAMESPACE));
    assert_eq!(loader.parsed_files(), 5);
    // An included file that vanishes, then comes back.
    let catalog =
        loader.load(&tree().file("b.yaml", agent("four", "")).without("p.md"), Some(NAMESPACE));
    assert_eq!((loader.parsed_files(), names(&catalog).len()), (6, 1));
    let catalog = loader.load(&tree().file("b.yaml", agent("four", "")), Some(NAMESPACE));
    assert_eq!((loader.parsed_files(), names(&catalog).len()), (7, 2));
    // A file that goes is forgotten, a moved one is read under its new name.
    let catalog =
        loader.load(&tree().without("b.yaml").file("c.yaml", agent("four", "")), Some(NAMESPACE));
    assert_eq!((loader.parsed_files(), names(&catalog).len()), (8, 2));
    // Another namespace judges anew.
    loader.load(&tree(), Some("other"));
    assert_eq!(loader.parsed_files(), 11);
}

/// A tree whose reads fail for a while.
struct Flaky(MemoryTree, AtomicBool);

impl RepositoryTree for Flaky {
    fn entries(&self) -> &[TreeEntry] {
        self.0.entries()
    }
    fn problems(&self) -> &[TreeProblem] {
        self.0.problems()
    }
    fn lookup(&self, path: &str) -> Result<Option<TreeEntry>, TreeError> {
        self.0.lookup(path)
    }
    fn read(&self, entry: &TreeEntry, max_bytes: u64) -> Result<Arc<[u8]>, TreeError> {
        if self.1.load(Ordering::Relaxed) {
            return Err(TreeError::Unreadable { path: entry.path.clone(), reason: "disk".into() });
        }
        self.0.read(entry, max_bytes)
    }
}

#[test]
fn a_failed_read_is_an_error_and_is_tried_again() {
    let flaky = Flaky(tree(), AtomicBool::new(true));
    let mut loader = Loader::new(Limits::default());
    let catalog = loader.load(&flaky, Some(NAMESPACE));
    assert_eq!(catalog.definitions.len(), 0);
    assert_eq!(catalog.broken_paths.len(), 3);
    assert_eq!(places(&catalog), ["0:0 CVK0002", "0:0 CVK0002", "0:0 CVK0002"]);
    flaky.1.store(false, Ordering::Relaxed);
    assert_eq!(names(&loader.load(&flaky, Some(NAMESPACE))), ["Agent/one", "Agent/two"]);
}

#[test]
fn a_loader_can_move_between_threads() {
    fn movable<T: Send>() {}
    movable::<Loader>();
    movable::<Catalog>();
}
