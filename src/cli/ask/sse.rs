//! (pure) Server-sent events: the data of each event, from bytes as they arrive.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

/// Bytes of the longest event.
pub(super) const MAX_EVENT_BYTES: usize = 16 << 20;

/// An event was longer than [`MAX_EVENT_BYTES`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Reads a stream of events. Only their data is kept: names, ids and times to retry are not used here.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The line that has begun.
    line: Vec<u8>,
    /// The data of the event that has begun, with a line feed after each line.
    data: Vec<u8>,
    /// The last byte was a carriage return. A line feed after it ends no other line.
    after_return: bool,
    /// The first line is over. Only that one may begin with a byte order mark.
    begun: bool,
}

impl Parser {
    /// Takes bytes, and gives the data of the events that they complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, TooLong> {
        let mut events = Vec::new();
        for &byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => events.extend(self.end_of_line()),
                _ => self.line.push(byte),
            }
            if self.line.len() + self.data.len() > MAX_EVENT_BYTES {
                return Err(TooLong);
            }
        }
        Ok(events)
    }

    /// Reads a line that is complete. Gives the data of an event if the line ends one.
    fn end_of_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            let mut data = std::mem::take(&mut self.data);
            // Each line of data has left a line feed, and the last one is not part of it.
            data.pop()?;
            return Some(String::from_utf8_lossy(&data).into_owned());
        }
        let (name, value) = match line.iter().position(|&byte| byte == b':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &[][..]),
        };
        if name == b"data" {
            self.data.extend(value.strip_prefix(b" ").unwrap_or(value));
            self.data.push(b'\n');
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a text that arrives in pieces of `size` bytes.
    fn events(text: &str, size: usize) -> Vec<String> {
        let mut parser = Parser::default();
        let pieces = text.as_bytes().chunks(size);
        pieces.flat_map(|piece| parser.push(piece).expect("short events")).collect()
    }

    #[test]
    fn d4_events_are_the_same_however_their_bytes_arrive() {
        let text = "\u{feff}data: eins\n\n: a comment\nevent: x\ndata:zwei\r\ndata:  drei ä\r\n\r\nid: 7\n\ndata\rdata: a: b\r\rdata: cut";
        for size in [1, 2, 3, 7, 1000] {
            assert_eq!(events(text, size), ["eins", "zwei\n drei ä", "\na: b"], "{size}");
        }
    }

    #[test]
    fn d4_an_event_without_an_end_is_given_up() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1 << 20];
        let all = MAX_EVENT_BYTES / piece.len();
        for _ in 0..all {
            assert_eq!(parser.push(&piece), Ok(Vec::new()));
        }
        assert_eq!(parser.push(b"x"), Err(TooLong));
        // The same for many short lines.
        let mut parser = Parser::default();
        let line = [b"data:".as_slice(), &piece, b"\n"].concat();
        let most = (0..=all).find(|_| parser.push(&line).is_err());
        assert!(most.is_some());
    }
}
