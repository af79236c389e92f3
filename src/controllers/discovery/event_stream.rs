//! (pure) Streams of events (`text/event-stream`), as they arrive.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

/// The part of a stream that is no whole event yet. Whoever reads the stream has a budget for all of it.
#[derive(Debug, Default)]
pub struct EventStream {
    /// The line that has no end yet.
    line: Vec<u8>,
    /// The data of the event that has no end yet.
    data: Vec<u8>,
    has_data: bool,
    /// Whether the last byte was the `\r` that ended a line: a `\n` behind it belongs to it.
    was_return: bool,
}

impl EventStream {
    /// Adds bytes. Gives the data of the events that they end. Events without data are none.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut events = Vec::new();
        for byte in bytes {
            let is_second_of_two = self.was_return && *byte == b'\n';
            self.was_return = *byte == b'\r';
            match byte {
                b'\n' if is_second_of_two => {}
                b'\n' | b'\r' => events.extend(self.end_line()),
                _ => self.line.push(*byte),
            }
        }
        events
    }

    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return std::mem::take(&mut self.has_data).then_some(data);
        }
        let value = match line.strip_prefix(b"data") {
            Some([]) => Some(&[][..]),
            Some([b':', b' ', value @ ..] | [b':', value @ ..]) => Some(value),
            // Another field that begins with these letters, or a comment.
            _ => None,
        };
        if let Some(value) = value {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(value);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(stream: &[&str]) -> Vec<String> {
        let mut events = EventStream::default();
        let found = stream.iter().flat_map(|bytes| events.push(bytes.as_bytes()));
        found.map(|data| String::from_utf8_lossy(&data).into_owned()).collect()
    }

    #[test]
    fn t5_events_are_read_however_they_are_cut_and_whatever_ends_their_lines() {
        let one = "event: message\ndata: {\"id\":1}\n\n";
        assert_eq!(all(&[one]), ["{\"id\":1}"]);
        let bytes: Vec<_> = one.split("").collect();
        assert_eq!(all(&bytes), ["{\"id\":1}"]);
        assert_eq!(all(&["data: a\r", "\n\r", "\ndata:b\r\r"]), ["a", "b"]);
        assert_eq!(all(&["data: a\ndata: b\n\n"]), ["a\nb"]);
    }

    #[test]
    fn t5_comments_other_fields_and_unfinished_events_are_none() {
        assert!(all(&[": ping\n\nid: 7\nretry: 1\n\ndatabase: x\n\n"]).is_empty());
        assert!(all(&["data: never ended\n"]).is_empty());
        assert_eq!(all(&["data\n\n"]), [""]);
    }
}
