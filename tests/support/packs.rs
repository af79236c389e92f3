//! Packs, written by hand.

use std::io::Write as _;

use gix::zlib::Compression;
use gix::zlib::stream::deflate;

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

/// What makes an object of `size` bytes of a base: these four bytes, and then copies of the base.
pub fn delta(base: usize, size: usize, beginning: u32) -> Vec<u8> {
    let mut made = [number(base), number(size), vec![4]].concat();
    made.extend(beginning.to_be_bytes());
    let mut left = size - 4;
    while left > 0 {
        // A copy from this offset, of this size.
        let count = left.min(base - 4);
        made.extend([0xf1, 4]);
        made.extend(&u32::try_from(count).unwrap().to_le_bytes()[..3]);
        left -= count;
    }
    made
}

/// A pack.
pub struct Pack {
    bytes: Vec<u8>,
    pub count: u32,
}

impl Pack {
    pub fn new() -> Self {
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
        self.content(reference, content);
        at
    }

    fn content(&mut self, reference: &[u8], content: &[u8]) {
        self.bytes.extend(reference);
        let mut zlib = deflate::Write::new(Vec::new(), Compression::BEST);
        zlib.write_all(content).unwrap();
        zlib.flush().unwrap();
        self.bytes.extend(zlib.into_inner());
        self.count += 1;
    }

    pub fn blob(&mut self, content: &[u8]) -> usize {
        self.add(3, b"", content)
    }

    /// A blob whose size is written with a byte more than it needs. It has less than 16 bytes.
    pub fn overlong_blob(&mut self, content: &[u8]) {
        self.bytes.extend([0x80 | 3 << 4 | u8::try_from(content.len()).unwrap(), 0]);
        self.content(b"", content);
    }

    /// A delta of the object at an offset.
    pub fn delta(&mut self, base: usize, instructions: &[u8]) -> usize {
        let mut distance = self.bytes.len() - base;
        let mut reference = vec![u8::try_from(distance & 0x7f).unwrap()];
        while distance >> 7 > 0 {
            distance = (distance >> 7) - 1;
            reference.insert(0, u8::try_from(distance & 0x7f).unwrap() | 0x80);
        }
        self.add(6, &reference, instructions)
    }

    /// A delta of the object with an id.
    pub fn delta_of_id(&mut self, base: &gix::oid, instructions: &[u8]) -> usize {
        self.add(7, base.as_bytes(), instructions)
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.bytes[8..12].copy_from_slice(&self.count.to_be_bytes());
        let mut hasher = gix::hash::hasher(gix::hash::Kind::Sha1);
        hasher.update(&self.bytes);
        let sum = hasher.try_finalize().unwrap();
        self.bytes.extend(sum.as_slice());
        self.bytes
    }
}

/// The id of a blob.
pub fn blob_id(content: &[u8]) -> gix::ObjectId {
    gix::objs::compute_hash(gix::hash::Kind::Sha1, gix::objs::Kind::Blob, content).unwrap()
}

/// A blob that was made of a base: its beginning, and the rest of the base again and again.
pub fn made_of(base: &[u8], size: usize, beginning: u32) -> Vec<u8> {
    let rest = base[4..].iter().copied().cycle();
    beginning.to_be_bytes().into_iter().chain(rest).take(size).collect()
}
