//! The shorthands of the repository format, turned into the plain form before validation:
//! a string for `{name: …}`, `…File` fields, and a missing value for a field that may be left out.

use crate::api::Kind;

use super::Limits;
use super::diagnostic::{Code, Sink, clip, nearest};
use super::node::{Data, Entry, Node, Position};
use super::schema::{Schema, Schemas, Type};
use super::tree::{EntryKind, RepositoryTree, TreeEntry, TreeError};

/// First line of a Git LFS pointer (<https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md>).
const LFS_PREFIX: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Whether the content is a Git LFS pointer instead of the file.
pub(super) fn is_lfs_pointer(content: &[u8]) -> bool {
    content.starts_with(LFS_PREFIX)
}

/// Reads included files for one definition file, and remembers which.
pub(super) struct Includes<'a> {
    tree: &'a dyn RepositoryTree,
    /// Folder of the definition, without a slash at the end; empty for the root.
    folder: &'a str,
    max_bytes: u64,
    /// Every path that was looked up, and what was there.
    pub seen: Vec<(String, Option<TreeEntry>)>,
    /// Something could not be read for a reason that may pass: the result must not be cached.
    pub transient: bool,
}

impl<'a> Includes<'a> {
    pub fn new(tree: &'a dyn RepositoryTree, path: &'a str, limits: &Limits) -> Self {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        Self {
            tree,
            folder,
            max_bytes: limits.max_include_bytes,
            seen: Vec::new(),
            transient: false,
        }
    }
}

/// Normalises a spec in place.
pub(super) fn normalise(
    kind: Kind,
    spec: &mut Node,
    includes: &mut Includes<'_>,
    sink: &mut Sink<'_>,
) {
    if let Some(schema) = Schemas::get().kind(kind) {
        walk(&schema.spec, spec, includes, sink);
    }
}

fn walk(schema: &Schema, node: &mut Node, includes: &mut Includes<'_>, sink: &mut Sink<'_>) {
    if schema.is_name_reference()
        && let Data::String(name) = &mut node.data
    {
        let name = Node { at: node.at, data: Data::String(std::mem::take(name)) };
        node.data = Data::Map(vec![Entry { key: "name".to_owned(), key_at: node.at, value: name }]);
    }
    match &mut node.data {
        Data::Map(entries) if schema.kind == Type::Object => {
            for (from, to) in &schema.files {
                resolve_file(from, to, entries, includes, sink);
            }
            // To the API server a null in a nullable field is as good as none; one form is enough.
            entries.retain(|entry| {
                !(entry.value.is_null()
                    && schema.properties.get(&entry.key).is_some_and(|field| field.nullable))
            });
            for entry in entries {
                if let Some(field) =
                    schema.properties.get(&entry.key).or(schema.additional.as_deref())
                {
                    walk(field, &mut entry.value, includes, sink);
                }
            }
        }
        Data::List(items) => {
            if let Some(of) = &schema.items {
                for item in items {
                    walk(of, item, includes, sink);
                }
            }
        }
        _ => {}
    }
}

/// Replaces `<x>File: path` by `<x>: content`. On an error the field is removed, and the error says so.
fn resolve_file(
    from: &str,
    to: &str,
    entries: &mut Vec<Entry>,
    includes: &mut Includes<'_>,
    sink: &mut Sink<'_>,
) {
    let Some(index) = entries.iter().position(|entry| entry.key == from) else { return };
    let Entry { key_at, value, .. } = entries.remove(index);
    if entries.iter().any(|entry| entry.key == to && !entry.value.is_null()) {
        let message = format!("`{from}` and `{to}` exclude each other");
        sink.error(key_at, Code::BothForms, message, Some("remove one of the two".to_owned()));
        return;
    }
    let Some(written) = value.as_str() else {
        if value.is_unknown() {
            return;
        }
        let message = format!("`{from}` must be a path, not {}", value.type_name());
        sink.error(value.at, Code::WrongType, message, None);
        return;
    };
    if let Some(content) = read(from, written, value.at, includes, sink) {
        entries.retain(|entry| entry.key != to);
        let value = Node { at: value.at, data: Data::String(content) };
        entries.push(Entry { key: to.to_owned(), key_at, value });
    }
}

fn read(
    from: &str,
    written: &str,
    at: Position,
    includes: &mut Includes<'_>,
    sink: &mut Sink<'_>,
) -> Option<String> {
    let path = match resolve_path(includes.folder, written) {
        Ok(path) => path,
        Err(why) => {
            let hint =
                "a path is relative to this file; a leading '/' means the root of the repository";
            sink.error(at, Code::IncludePath, format!("`{from}`: {why}"), Some(hint.to_owned()));
            return None;
        }
    };
    let shown = clip(&path);
    let Ok(entry) = includes.tree.lookup(&path) else {
        includes.transient = true;
        sink.error(at, Code::Unreadable, format!("cannot look for the file {shown}"), None);
        return None;
    };
    includes.seen.push((path.clone(), entry.clone()));
    let Some(entry) = entry else {
        let hint =
            near_file(includes.tree, &path).map(|name| format!("did you mean {}?", clip(name)));
        sink.error(at, Code::IncludeMissing, format!("the file {shown} does not exist"), hint);
        return None;
    };
    if entry.kind != EntryKind::File {
        let hint =
            Some("links and submodules are never followed: commit the file itself".to_owned());
        sink.error(at, Code::IncludeNotAFile, format!("{shown} is no regular file"), hint);
        return None;
    }
    let content = match includes.tree.read(&entry, includes.max_bytes) {
        Ok(content) => content,
        Err(TreeError::TooLarge { .. }) => {
            let message = format!("the file {shown} is larger than {} bytes", includes.max_bytes);
            sink.error(at, Code::IncludeTooLarge, message, None);
            return None;
        }
        Err(_) => {
            includes.transient = true;
            sink.error(at, Code::Unreadable, format!("cannot read the file {shown}"), None);
            return None;
        }
    };
    if is_lfs_pointer(&content) {
        let hint = Some("commit the file itself: Git LFS is not supported".to_owned());
        sink.error(
            at,
            Code::IncludeNotText,
            format!("the file {shown} is a Git LFS pointer"),
            hint,
        );
        return None;
    }
    match std::str::from_utf8(&content) {
        Ok(text) if !text.contains('\0') => {
            Some(text.strip_prefix('\u{feff}').unwrap_or(text).to_owned())
        }
        _ => {
            let hint = Some("save it as UTF-8".to_owned());
            sink.error(
                at,
                Code::IncludeNotText,
                format!("the file {shown} is not UTF-8 text"),
                hint,
            );
            None
        }
    }
}

/// The path from the root of the repository, or why there is none.
fn resolve_path(folder: &str, written: &str) -> Result<String, &'static str> {
    if written.is_empty() {
        return Err("the path is empty");
    }
    if written.len() > 4096 {
        return Err("the path is too long");
    }
    if written.chars().any(|c| c.is_control() || c == '\\') {
        return Err("the path holds a character that is not allowed");
    }
    let base = if written.starts_with('/') { "" } else { folder };
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in written.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or("the path leaves the repository")?;
            }
            part if part.eq_ignore_ascii_case(".git") => return Err("the path leads into .git"),
            part => parts.push(part),
        }
    }
    if parts.is_empty() || written.ends_with('/') {
        Err("the path names a folder")
    } else {
        Ok(parts.join("/"))
    }
}

/// The file in the same folder whose name is nearest.
fn near_file<'a>(tree: &'a dyn RepositoryTree, path: &str) -> Option<&'a str> {
    let split = |path: &'a str| path.rsplit_once('/').unwrap_or(("", path));
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let siblings = tree.entries().iter().filter(|entry| entry.kind == EntryKind::File);
    let siblings = siblings.map(|entry| split(&entry.path)).filter(|(parent, _)| *parent == folder);
    nearest(name, siblings.map(|(_, name)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g8_paths_stay_inside_of_the_repository() {
        for (folder, written, path) in [
            ("", "a.md", "a.md"),
            ("prod/agents", "a.md", "prod/agents/a.md"),
            ("prod/agents", "./x/../a.md", "prod/agents/a.md"),
            ("prod/agents", "../../a.md", "a.md"),
            ("prod", "/shared//a.md", "shared/a.md"),
            ("prod", "..a/b..md", "prod/..a/b..md"),
        ] {
            assert_eq!(resolve_path(folder, written).as_deref(), Ok(path), "{folder} {written}");
        }
        for (folder, written) in [
            ("", ""),
            ("", "../a"),
            ("a", "../../b"),
            ("a", "/../b"),
            ("a", "x/../../../a/b"),
            ("a", "b/"),
            ("a", ".."),
            ("", "/"),
            ("", ".git/config"),
            ("a", "../.GIT/config"),
            ("a", "b\\c"),
            ("a", "b\nc"),
            ("a", "b\0c"),
        ] {
            assert!(resolve_path(folder, written).is_err(), "{folder} {written:?}");
        }
    }
}
