//! The images that a Dockerfile takes files from: those of its `FROM` lines, of `COPY --from` and of `RUN --mount=from=`.
//!
//! It is read as buildah reads it. What cannot be told for certain is reported with its line, and never guessed.

mod lines;
mod variables;

use std::collections::{BTreeMap, BTreeSet};

use self::lines::{Lines, words};
use self::variables::{Scope, literal};

/// The most bytes of a Dockerfile that is read.
pub const MAX_BYTES: u64 = 256 << 10;
/// The most images of one Dockerfile.
pub const MAX_IMAGES: usize = 8;
/// The most instructions that are kept, and the most problems that are told.
const MAX_KEPT: usize = 256;
/// The most bytes of a name of an image, as it is written and with its variables replaced.
const MAX_NAME: usize = 512;
/// The base that is no image.
const SCRATCH: &str = "scratch";

/// What is kept of a Dockerfile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dockerfile {
    /// `ARG` before the first `FROM`: its names with their defaults.
    arguments: Vec<Argument>,
    /// The names of the stages, by number.
    stages: Vec<Option<String>>,
    uses: Vec<Use>,
    unknown: Vec<Unknown>,
}

/// A global argument.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Argument {
    name: String,
    /// As it is written.
    default: Option<String>,
}

/// A place that names an image or a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Use {
    line: usize,
    word: String,
    /// Whether it is a `FROM`: there variables are replaced, and any other stage is an earlier one.
    is_from: bool,
    /// The number of stages before it.
    before: usize,
}

/// An image that a Dockerfile names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// The name as the Dockerfile has it, perhaps with variables. Of letters, digits and `. _ - / : @ $ { } +` only.
    pub word: String,
    /// The name with its variables replaced. It has no digest.
    pub image: String,
    /// The line, from 1.
    pub line: usize,
}

/// Something of which it is not known which image it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// The line, from 1.
    pub line: usize,
    /// Why, in words.
    pub why: String,
}

/// The images of a Dockerfile.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bases {
    /// Those that are named without a digest, each word once, in the order of the file.
    pub images: Vec<Base>,
    /// What is not known.
    pub unknown: Vec<Unknown>,
}

impl Dockerfile {
    /// Reads a Dockerfile. What is no instruction that counts here is skipped.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut file = Self::default();
        for line in Lines::of(text) {
            if file.uses.len() + file.arguments.len() + file.stages.len() >= MAX_KEPT
                || file.unknown.len() >= MAX_KEPT
            {
                file.fails(line.number, "more instructions follow than are read");
                break;
            }
            if let Some(why) = line.problem {
                file.fails(line.number, why);
                break;
            }
            file.instruction(line.number, &line.text);
        }
        file
    }

    fn fails(&mut self, line: usize, why: &str) {
        self.unknown.push(Unknown { line, why: why.to_owned() });
    }

    fn instruction(&mut self, line: usize, text: &str) {
        let mut all = text.split_ascii_whitespace();
        let name = all.next().unwrap_or_default().to_ascii_uppercase();
        let mut rest: Vec<&str> = all.collect();
        let flags = rest.iter().take_while(|word| word.starts_with("--")).count();
        let flags: Vec<&str> = rest.drain(..flags).collect();
        match name.as_str() {
            "FROM" => self.from(line, &rest),
            "ARG" if self.stages.is_empty() => self.argument(line, text),
            "COPY" | "ADD" => {
                let from = flags.iter().filter_map(|flag| flag.strip_prefix("--from="));
                from.for_each(|word| self.takes(line, word, false));
            }
            "RUN" => {
                let mounts = flags.iter().filter_map(|flag| flag.strip_prefix("--mount="));
                let fields = mounts.flat_map(|mount| mount.split(','));
                let from = fields.filter_map(|field| field.strip_prefix("from="));
                from.for_each(|word| self.takes(line, word, false));
            }
            _ => {}
        }
    }

    fn from(&mut self, line: usize, words: &[&str]) {
        let (word, stage) = match words {
            [word] => (word, None),
            [word, as_, stage] if as_.eq_ignore_ascii_case("as") => (word, Some(stage)),
            _ => {
                self.fails(line, "this FROM is not understood");
                self.stages.push(None);
                return;
            }
        };
        self.takes(line, word, true);
        self.stages.push(stage.map(|&stage| stage.to_owned()));
    }

    fn takes(&mut self, line: usize, word: &str, is_from: bool) {
        if word.len() > MAX_NAME {
            self.fails(line, "the name of an image is too long");
            return;
        }
        let before = self.stages.len();
        self.uses.push(Use { line, word: word.to_owned(), is_from, before });
    }

    fn argument(&mut self, line: usize, text: &str) {
        let Some(words) = words(text) else {
            self.fails(line, "this ARG is not understood");
            return;
        };
        for word in words.iter().skip(1) {
            let (name, default) = match word.split_once('=') {
                Some((name, default)) => (name, Some(default.to_owned())),
                None => (word.as_str(), None),
            };
            self.arguments.push(Argument { name: name.to_owned(), default });
        }
    }

    /// The images that it names with these build arguments.
    #[must_use]
    pub fn bases(&self, build_args: &BTreeMap<String, String>) -> Bases {
        let mut scope = Scope::new(build_args);
        for Argument { name, default } in &self.arguments {
            scope.declare(name, default.as_deref());
        }
        let mut bases = Bases { images: Vec::new(), unknown: self.unknown.clone() };
        let mut seen = BTreeSet::new();
        for used in &self.uses {
            match self.image(used, &scope) {
                Ok(None) => {}
                Ok(Some(_)) if !seen.insert(&used.word) => {}
                Ok(Some(_)) if bases.images.len() == MAX_IMAGES => {
                    let why =
                        format!("{}: no more than {MAX_IMAGES} images are followed", used.word);
                    bases.unknown.push(Unknown { line: used.line, why });
                }
                Ok(Some(image)) => {
                    let (word, line) = (used.word.clone(), used.line);
                    bases.images.push(Base { word, image, line });
                }
                Err(why) => {
                    let why = format!("{}: {why}", used.word);
                    bases.unknown.push(Unknown { line: used.line, why });
                }
            }
        }
        bases.unknown.sort_by_key(|unknown| unknown.line);
        bases
    }

    /// The image that something names, with its variables replaced. `None` for a stage, and for what never changes.
    fn image(&self, used: &Use, scope: &Scope<'_>) -> Result<Option<String>, String> {
        let image = if used.is_from {
            scope.replaced(&used.word)?
        } else {
            literal(&used.word)?.to_owned()
        };
        // Names of stages are in no case of letters.
        let named = |of: &str| {
            let is = |stage: &Option<String>| {
                stage.as_ref().is_some_and(|stage| stage.eq_ignore_ascii_case(of))
            };
            self.stages.iter().position(is)
        };
        if image == SCRATCH && used.is_from {
            return Ok(None);
        }
        if !used.is_from && image.parse::<usize>().is_ok_and(|stage| stage < used.before) {
            return Ok(None);
        }
        match named(&image) {
            Some(stage) if stage < used.before => return Ok(None),
            Some(_) => return Err("a stage has the same name".into()),
            None => {}
        }
        if named(&used.word).is_some() {
            return Err("a stage has the same name".into());
        }
        if image.contains('@') {
            return Ok(None);
        }
        if image.len() > MAX_NAME {
            return Err("the name of the image is too long".into());
        }
        let is_safe = |word: &str| {
            word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-/:@${}+".contains(&b))
        };
        if !is_safe(&used.word) || used.word.contains("$$") {
            return Err("the name has characters with which it cannot be named to the build".into());
        }
        if image.is_empty() || image.contains(['$', '{', '}', '+']) || !is_safe(&image) {
            return Err("this is no name of an image".into());
        }
        Ok(Some(image))
    }
}

#[cfg(test)]
#[path = "tests/dockerfile.rs"]
mod tests;
