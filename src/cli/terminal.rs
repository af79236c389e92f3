//! What commands that go on for a while show and read: text as it arrives, lines beside it, and what a person types.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::fd::AsFd;

use rustix::termios::{QueueSelector, tcflush};
use tokio::sync::oneshot;

use super::{CLUSTER, Failure, USAGE};
use convoke_core::text::{is_invisible, printable};

/// Bytes of the longest line that is read from standard input.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// A text of several lines that does not change how a terminal looks: all control characters but tabs and line feeds, and all
/// invisible characters, are spaces.
pub(super) fn on_terminal(text: &str) -> String {
    let is_safe = |c: char| c == '\n' || c == '\t' || !(c.is_control() || is_invisible(c));
    text.chars().map(|c| if is_safe(c) { c } else { ' ' }).collect()
}

/// Standard output and standard error, or what takes their place in tests.
pub(super) struct Screen {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    /// Standard output is a terminal.
    out_is_terminal: bool,
    /// Both are the same terminal, as far as that can be known.
    is_shared: bool,
    /// The text on standard output has ended with a line feed.
    at_start: bool,
    /// Whoever read standard output has ended.
    is_unread: bool,
}

impl Screen {
    pub(super) fn new() -> Self {
        let (out, err) = (std::io::stdout(), std::io::stderr());
        let out_is_terminal = out.is_terminal();
        let is_shared = out_is_terminal && err.is_terminal();
        Self::of(Box::new(out), Box::new(err), out_is_terminal, is_shared)
    }

    pub(super) fn of(
        out: Box<dyn Write>,
        err: Box<dyn Write>,
        out_is_terminal: bool,
        is_shared: bool,
    ) -> Self {
        Self { out, err, out_is_terminal, is_shared, at_start: true, is_unread: false }
    }

    /// Writes text to standard output, at once: as it is, but for a terminal.
    pub(super) fn text(&mut self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        self.at_start = text.ends_with('\n');
        if self.out_is_terminal {
            self.write(on_terminal(text).as_bytes())
        } else {
            self.write(text.as_bytes())
        }
    }

    /// Writes bytes to standard output: as they are, but for a terminal.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.out_is_terminal {
            self.text(&String::from_utf8_lossy(bytes))
        } else {
            self.write(bytes)
        }
    }

    /// Ends the line of the text, if one has begun.
    pub(super) fn end_line(&mut self) -> Result<(), Failure> {
        if self.at_start { Ok(()) } else { self.text("\n") }
    }

    /// Writes a line to standard error, below the text.
    pub(super) fn note(&mut self, line: &str) -> Result<(), Failure> {
        self.lines(&format!("{}\n", printable(line)))
    }

    /// Writes lines to standard error, below the text, for a person.
    pub(super) fn lines(&mut self, lines: &str) -> Result<(), Failure> {
        if self.is_shared {
            self.end_line()?;
        }
        // Nobody can be told when standard error cannot be written to.
        let _ = self.err.write_all(on_terminal(lines).as_bytes()).and_then(|()| self.err.flush());
        Ok(())
    }

    /// Whether whoever read standard output has ended, as `head` does. A command that would go on without end ends then.
    pub(super) const fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// It is no error if the reader has ended.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self.out.write_all(bytes).and_then(|()| self.out.flush()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                self.is_unread = true;
                Ok(())
            }
            Err(error) => {
                Err(Failure::new(CLUSTER, format!("cannot write to standard output: {error}")))
            }
            Ok(()) => Ok(()),
        }
    }
}

/// The lines of standard input. None is read before it is wanted, so what is typed ahead stays in the terminal. A thread of its own
/// reads each line, and nothing waits for that thread at the end.
pub(super) struct Input {
    /// With the thread while a line is read; gone after the end of the input and after a failure.
    keyboard: Option<Box<dyn Keyboard>>,
    /// Somebody can be asked.
    pub(super) is_terminal: bool,
}

impl Input {
    /// Nothing is read yet.
    pub(super) fn new() -> Result<Self, Failure> {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        // The buffer of `std::io::stdin` cannot be emptied, so this has one of its own.
        let file = std::io::stdin().as_fd().try_clone_to_owned();
        let file = file.map_err(|error| unreadable(&error.to_string()))?;
        let keyboard: Box<dyn Keyboard> = Box::new(Lines(BufReader::new(File::from(file))));
        Ok(Self { keyboard: Some(keyboard), is_terminal })
    }

    /// The next line, without its end; `None` at the end of the input.
    pub(super) async fn line(&mut self) -> Result<Option<String>, Failure> {
        let Some(mut keyboard) = self.keyboard.take() else { return Ok(None) };
        let (sender, receiver) = oneshot::channel();
        std::thread::spawn(move || {
            let line = keyboard.line();
            // Nobody waits any more when the command ends.
            let _ = sender.send((keyboard, line));
        });
        let Ok((keyboard, line)) = receiver.await else { return Ok(None) };
        if matches!(line, Ok(Some(_))) {
            self.keyboard = Some(keyboard);
        }
        line.map_err(|why| unreadable(&why))
    }

    /// Drops what has been typed so far. Only for a terminal.
    pub(super) fn forget(&mut self) -> Result<(), Failure> {
        match &mut self.keyboard {
            Some(keyboard) => keyboard.forget().map_err(|why| unreadable(&why)),
            None => Ok(()),
        }
    }
}

fn unreadable(why: &str) -> Failure {
    Failure::new(USAGE, format!("cannot read from standard input: {why}"))
}

/// Where lines come from.
trait Keyboard: Send {
    /// The next line, without its end; `None` at the end of the input.
    fn line(&mut self) -> Result<Option<String>, String>;

    /// Drops what has been typed and was not read.
    fn forget(&mut self) -> Result<(), String>;
}

/// The lines of a terminal or a pipe.
struct Lines(BufReader<File>);

impl Keyboard for Lines {
    fn line(&mut self) -> Result<Option<String>, String> {
        let mut line = String::new();
        match self.0.by_ref().take(MAX_LINE_BYTES).read_line(&mut line) {
            Ok(0) => Ok(None),
            Ok(_) if line.ends_with('\n') || line.len() < too_long() => {
                Ok(Some(line.trim_end_matches(['\n', '\r']).to_owned()))
            }
            Ok(_) => Err(format!("a line is longer than {} MiB", MAX_LINE_BYTES >> 20)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn forget(&mut self) -> Result<(), String> {
        let read = self.0.buffer().len();
        self.0.consume(read);
        tcflush(self.0.get_ref(), QueueSelector::IFlush).map_err(|error| error.to_string())
    }
}

/// Length of a line that has been cut.
fn too_long() -> usize {
    usize::try_from(MAX_LINE_BYTES).unwrap_or(usize::MAX)
}

/// All of standard input, as one text.
pub(super) fn all_of_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    let failed = |why: String| Failure::new(USAGE, format!("cannot read the question: {why}"));
    std::io::stdin()
        .lock()
        .take(MAX_LINE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| failed(error.to_string()))?;
    if text.len() > too_long() {
        return Err(failed(format!("it is longer than {} MiB", MAX_LINE_BYTES >> 20)));
    }
    Ok(text)
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::rc::Rc;

    use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};

    use super::*;

    /// What was written. A clone shares it.
    #[derive(Clone, Default)]
    pub(crate) struct Written(Rc<RefCell<Vec<u8>>>);

    impl Written {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.borrow().clone()).expect("UTF-8")
        }

        pub(crate) fn bytes(&self) -> Vec<u8> {
            self.0.borrow().clone()
        }
    }

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// A screen, and what is written to its two streams.
    pub(crate) fn screen(is_terminal: bool) -> (Screen, Written, Written) {
        let (out, err) = (Written::default(), Written::default());
        let screen =
            Screen::of(Box::new(out.clone()), Box::new(err.clone()), is_terminal, is_terminal);
        (screen, out, err)
    }

    /// Among typed lines: here a prompt is shown, and what stands before it was typed ahead.
    pub(crate) const PROMPT: &str = "\0prompt";

    /// A pipe whose reader has ended.
    pub(crate) struct Unread;

    impl Write for Unread {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Lines that somebody types.
    struct Typed(VecDeque<String>);

    impl Keyboard for Typed {
        fn line(&mut self) -> Result<Option<String>, String> {
            while self.0.front().is_some_and(|line| line == PROMPT) {
                self.0.pop_front();
            }
            Ok(self.0.pop_front())
        }

        fn forget(&mut self) -> Result<(), String> {
            let prompt = self.0.iter().position(|line| line == PROMPT);
            self.0.drain(..prompt.map_or(self.0.len(), |prompt| prompt + 1));
            Ok(())
        }
    }

    /// Lines that are typed on a terminal, or come from a pipe.
    pub(crate) fn input(lines: &[&str], is_terminal: bool) -> Input {
        let typed = lines.iter().map(|line| (*line).to_owned()).collect();
        Input { keyboard: Some(Box::new(Typed(typed))), is_terminal }
    }

    /// The two ends of a terminal: where a person types and sees, and where a program reads.
    fn terminal() -> (File, Input) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let person = openpt(flags).expect("a terminal");
        unlockpt(&person).expect("it can be opened");
        let program = ioctl_tiocgptpeer(&person, flags).expect("its other end");
        let lines = Lines(BufReader::new(File::from(program)));
        let input = Input { keyboard: Some(Box::new(lines)), is_terminal: true };
        (File::from(person), input)
    }

    /// Types, and waits until the terminal shows it: then the terminal has it.
    fn types(person: &mut File, text: &str) {
        person.write_all(text.as_bytes()).expect("typed");
        let (wanted, mut shown) = (text.replace('\n', "\r\n"), Vec::new());
        while shown.len() < wanted.len() {
            let mut bytes = [0; 64];
            let read = person.read(&mut bytes).expect("shown");
            shown.extend_from_slice(&bytes[..read]);
        }
        assert_eq!(String::from_utf8_lossy(&shown), wanted);
    }

    #[tokio::test]
    async fn d5_what_was_typed_before_a_prompt_does_not_answer_it() {
        let (mut person, mut input) = terminal();
        types(&mut person, "a question\ny\nye");
        assert_eq!(input.line().await.expect("a line").as_deref(), Some("a question"));
        input.forget().expect("forgotten");
        types(&mut person, "n\n");
        assert_eq!(input.line().await.expect("a line").as_deref(), Some("n"));
    }

    #[test]
    fn d4_d6_no_text_changes_how_a_terminal_looks_and_a_pipe_gets_it_as_it_is() {
        let text = "a\u{1b}[2Jb\r\u{202e}c\u{9b}31m\n\tnext";
        let (mut terminal, out, _) = screen(true);
        terminal.text(text).expect("written");
        assert_eq!(out.text(), "a [2Jb  c 31m\n\tnext");
        let (mut pipe, out, _) = screen(false);
        pipe.text(text).expect("written");
        pipe.bytes(b"\xff\x1b").expect("written");
        assert_eq!(out.bytes(), [text.as_bytes(), b"\xff\x1b"].concat());
    }

    #[test]
    fn d4_notes_stand_in_lines_of_their_own() {
        let (mut terminal, out, err) = screen(true);
        terminal.text("half a line").expect("written");
        terminal.note("→ tool x/\u{1b}[1my\nz").expect("written");
        terminal.note("→ tool y").expect("written");
        terminal.end_line().expect("written");
        assert_eq!(
            (out.text().as_str(), err.text().as_str()),
            ("half a line\n", "→ tool x/ [1my z\n→ tool y\n")
        );
        // Standard output is not changed for what is shown elsewhere.
        let (mut pipe, out, _) = screen(false);
        pipe.text("half a line").expect("written");
        pipe.note("→ tool x").expect("written");
        assert_eq!(out.text(), "half a line");
    }
}
