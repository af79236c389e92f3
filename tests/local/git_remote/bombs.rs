//! Packs that are small and need much memory: V21.

use gix::zlib::Compression;
use gix::zlib::stream::deflate;
use std::io::Write as _;

use super::*;

/// Bytes of each file.
const BYTES: usize = 100 << 10;

/// A number as packs write it: seven bits a byte, the lowest first.
fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7f).unwrap();
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

/// A pack, written by hand.
struct Pack {
    bytes: Vec<u8>,
    count: u32,
}

impl Pack {
    fn new() -> Self {
        Self { bytes: b"PACK\0\0\0\x02\0\0\0\0".to_vec(), count: 0 }
    }

    /// Adds an entry of a type. Returns its offset.
    fn add(&mut self, kind: u8, reference: &[u8], content: &[u8]) -> usize {
        let at = self.bytes.len();
        let (low, rest) = (u8::try_from(content.len() & 0xf).unwrap(), content.len() >> 4);
        let first = kind << 4 | low;
        if rest == 0 {
            self.bytes.push(first);
        } else {
            self.bytes.push(first | 0x80);
            self.bytes.extend(number(rest));
        }
        self.bytes.extend(reference);
        let mut zlib = deflate::Write::new(Vec::new(), Compression::BEST);
        zlib.write_all(content).unwrap();
        zlib.flush().unwrap();
        self.bytes.extend(zlib.into_inner());
        self.count += 1;
        at
    }

    fn blob(&mut self, content: &[u8]) -> usize {
        self.add(3, b"", content)
    }

    /// A file of the same size, whose beginning is this, and whose rest is that of the base.
    fn delta(&mut self, base: usize, beginning: u32) -> usize {
        let mut distance = self.bytes.len() - base;
        let mut reference = vec![u8::try_from(distance & 0x7f).unwrap()];
        while distance >> 7 > 0 {
            distance = (distance >> 7) - 1;
            reference.insert(0, u8::try_from(distance & 0x7f).unwrap() | 0x80);
        }
        let mut made = [number(BYTES), number(BYTES), vec![4]].concat();
        made.extend(beginning.to_be_bytes());
        // The rest is a copy, from this offset and of this size.
        made.extend([0xf1, 4]);
        made.extend(&u32::try_from(BYTES - 4).unwrap().to_le_bytes()[..3]);
        self.add(6, &reference, &made)
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes[8..12].copy_from_slice(&self.count.to_be_bytes());
        let mut hasher = gix::hash::hasher(gix::hash::Kind::Sha1);
        hasher.update(&self.bytes);
        let sum = hasher.try_finalize().unwrap();
        self.bytes.extend(sum.as_slice());
        self.bytes
    }
}

/// Commits the files of levels that are made of each other, with so many files in each. Returns their number.
fn commit_levels(world: &World, (levels, width): (u32, u32), first: u8) -> usize {
    let mut pack = Pack::new();
    let mut base = pack.blob(&[first; BYTES]);
    let mut files = vec![u32::from_be_bytes([first; 4])];
    for level in 1..=levels {
        for one in 0..width {
            let beginning = level << 8 | one;
            let at = pack.delta(base, beginning);
            files.push(beginning);
            if one + 1 == width {
                base = at;
            }
        }
    }
    let count = pack.count as usize;
    world.repo.git_with(&["index-pack", "--stdin", "--fix-thin"], &pack.finish());
    let entries: Vec<_> = files
        .iter()
        .map(|beginning| {
            let mut content = beginning.to_be_bytes().to_vec();
            content.resize(BYTES, first);
            (format!("f{beginning}.txt"), world.repo.blob(&content))
        })
        .collect();
    let entries: Vec<_> =
        entries.iter().map(|(name, id)| ("100644", name.as_bytes(), &**id)).collect();
    let tree = world.repo.raw_tree(&entries);
    world.repo.commit_tree("main", &tree);
    count
}

#[tokio::test(flavor = "multi_thread")]
async fn v21_deltas_that_need_much_memory_at_the_same_time_are_refused() {
    let world = World::new().await;
    // 3 MiB are allowed for the objects that are needed at the same time.
    let remote = world.remote_with(|options| options.limits.pack_bytes = 1 << 20);
    // One after the other: two are needed at the same time.
    let files = commit_levels(&world, (40, 1), b'a');
    let snapshot = sync(&remote, "").await.unwrap();
    assert_eq!(snapshot.entries().len(), files);
    assert!(content(&snapshot, "f256.txt").ends_with("aaa"));
    // A level is needed until the last file of the next one is made: all levels at the same time.
    commit_levels(&world, (40, 2), b'b');
    let error = sync(&remote, "").await.unwrap_err();
    assert_eq!(error.reason(), "PackTooLarge", "{error}");
    let told = error.to_string();
    assert!(told.contains("bytes of memory at the same time"), "{told}");
    // What was there is as good as before, and nothing is left behind.
    assert!(content(&snapshot, "f512.txt").ends_with("aaa"));
    let left = std::fs::read_dir(world.store()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("incoming")).collect();
    assert!(left.is_empty(), "{left:?}");
    // With fewer levels it is read.
    commit_levels(&world, (20, 2), b'c');
    let snapshot = sync(&remote, "").await.unwrap();
    assert!(content(&snapshot, "f256.txt").ends_with("ccc"));
}
