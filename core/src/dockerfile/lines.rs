//! The lines of a Dockerfile: instructions, with what continues them. Comments and heredocs are left out.

/// An instruction.
pub struct Line {
    /// Where it begins, from 1.
    pub number: usize,
    /// Its text.
    pub text: String,
    /// Why nothing from here on can be read.
    pub problem: Option<&'static str>,
}

/// The instructions of a text.
pub struct Lines<'t> {
    rest: std::iter::Enumerate<std::str::Lines<'t>>,
    /// Whether nothing but parser directives was read.
    may_direct: bool,
    has_failed: bool,
}

impl<'t> Lines<'t> {
    /// Of a whole Dockerfile.
    pub fn of(text: &'t str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { rest: text.lines().enumerate(), may_direct: true, has_failed: false }
    }

    /// Skips the heredocs of an instruction. `false` when one does not end.
    fn skip(&mut self, heredocs: &[Heredoc]) -> bool {
        heredocs.iter().all(|Heredoc { name, tabs }| {
            self.rest.any(|(_, line)| {
                let line = if *tabs { line.trim_start_matches('\t') } else { line };
                line == name
            })
        })
    }
}

/// Whether a comment changes the character that continues lines.
fn changes_escape(comment: &str) -> bool {
    let Some((name, value)) = comment.trim_start_matches('#').split_once('=') else { return false };
    name.trim().eq_ignore_ascii_case("escape") && value.trim() != "\\"
}

fn is_directive(comment: &str) -> bool {
    comment.contains('=')
}

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        if self.has_failed {
            return None;
        }
        let mut text = String::new();
        let mut number = None;
        for (at, line) in self.rest.by_ref() {
            let trimmed = line.trim();
            if trimmed.starts_with('#') {
                self.may_direct &= is_directive(trimmed);
                if self.may_direct && changes_escape(trimmed) {
                    self.has_failed = true;
                    let problem = Some("files with another escape character are not read");
                    return Some(Line { number: at + 1, text, problem });
                }
                continue;
            }
            self.may_direct = false;
            if trimmed.is_empty() {
                continue;
            }
            number.get_or_insert(at + 1);
            // White space that follows the character does not count.
            match line.trim_end().strip_suffix('\\') {
                Some(begun) if begun.ends_with('\\') => {
                    self.has_failed = true;
                    let problem = Some("a line that ends in two backslashes is not read");
                    return Some(Line { number: at + 1, text, problem });
                }
                Some(begun) => text += begun,
                None => {
                    text += line.trim_end();
                    break;
                }
            }
        }
        let number = number?;
        let problem = match heredocs(&text) {
            Some(heredocs) if self.skip(&heredocs) => None,
            Some(_) => Some("a heredoc does not end"),
            None => Some("the quotes of this instruction do not end"),
        };
        self.has_failed = problem.is_some();
        Some(Line { number, text, problem })
    }
}

/// Text that follows an instruction.
struct Heredoc {
    /// The line that ends it.
    name: String,
    /// Whether tabs before that do not count.
    tabs: bool,
}

/// The heredocs of an instruction; `None` when that cannot be told.
fn heredocs(text: &str) -> Option<Vec<Heredoc>> {
    let name = text.split_ascii_whitespace().next().unwrap_or_default();
    let may = ["RUN", "COPY", "ADD"].iter().any(|one| name.eq_ignore_ascii_case(one));
    if !may || !text.contains("<<") {
        return Some(Vec::new());
    }
    let one = |word: &String| {
        let rest = word.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix("<<")?;
        let (tabs, rest) = rest.strip_prefix('-').map_or((false, rest), |rest| (true, rest));
        let name: String = rest.chars().filter(|c| !matches!(c, '"' | '\'')).collect();
        (!name.is_empty() && !name.contains('<')).then_some(Heredoc { name, tabs })
    };
    Some(words(text)?.iter().filter_map(one).collect())
}

/// The words of a text, with their quotes. `None` when quotes do not end.
pub fn words(text: &str) -> Option<Vec<String>> {
    let (mut all, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match (quote, c) {
            (None, c) if c.is_whitespace() => {
                if !word.is_empty() {
                    all.push(std::mem::take(&mut word));
                }
                continue;
            }
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            (None | Some('"'), '\\') => {
                word.push(c);
                word.extend(rest.next());
                continue;
            }
            _ => {}
        }
        word.push(c);
    }
    if !word.is_empty() {
        all.push(word);
    }
    quote.is_none().then_some(all)
}
