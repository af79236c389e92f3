//! How many bytes the stores of all repositories have together, and which of them go first when these are too many.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

use parking_lot::Mutex;

/// The bytes of each store, and the limit for all of them.
pub(super) struct Disk {
    limit: u64,
    stores: Mutex<HashMap<String, u64>>,
}

impl Disk {
    pub fn new(limit: u64, stores: HashMap<String, u64>) -> Self {
        Self { limit, stores: Mutex::new(stores) }
    }

    /// Notes how many bytes a store has. Returns whether all together have too many.
    pub fn note(&self, id: &str, bytes: u64) -> bool {
        let mut stores = self.stores.lock();
        if bytes == 0 {
            stores.remove(id);
        } else {
            stores.insert(id.to_owned(), bytes);
        }
        self.is_too_much(stores.values().sum())
    }

    /// Whether so many bytes are too many for all stores together.
    pub fn is_too_much(&self, bytes: u64) -> bool {
        bytes > self.limit
    }

    /// Bytes of all stores together.
    pub fn bytes(&self) -> u64 {
        self.stores.lock().values().sum()
    }

    /// The stores in the order in which they go. The largest is the first, so that whoever has large repositories takes no room from those
    /// who have small ones; those that are `spared` come last.
    pub fn largest_first(&self, spared: impl Fn(&str) -> bool) -> Vec<(String, u64)> {
        let all = self.stores.lock().clone().into_iter();
        let mut all: Vec<_> = all.map(|(id, bytes)| (spared(&id), Reverse(bytes), id)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, Reverse(bytes), id)| (id, bytes)).collect()
    }
}

/// The bytes of all files in a folder and in those below it. What cannot be read counts as nothing. Links are not followed.
pub(super) fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => bytes_in(&entry.path()),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g3_the_largest_stores_go_first_and_those_that_are_spared_last() {
        let disk = Disk::new(100, HashMap::from([("left".to_owned(), 30)]));
        assert!(!disk.note("small", 10));
        assert!(!disk.note("large", 60));
        assert!(disk.note("other", 20) && disk.is_too_much(disk.bytes()));
        let order = |spared: &str| -> Vec<_> {
            let all = disk.largest_first(|id| id == spared);
            all.into_iter().map(|(id, _)| id).collect()
        };
        assert_eq!(order(""), ["large", "left", "other", "small"]);
        assert_eq!(order("large"), ["left", "other", "small", "large"]);
        assert!(!disk.note("left", 0) && disk.bytes() == 90);
    }
}
