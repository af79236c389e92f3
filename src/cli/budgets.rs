//! Flags of `convoke operator` that say what a repository may cost.

use std::fmt;
use std::str::FromStr;

use clap::Args as ClapArgs;

use crate::{definition, git};

/// Bytes, written like the quantities of Kubernetes: `65536`, `64Ki`, `64Mi`, `1Gi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bytes(u64);

const UNITS: [(&str, u64); 3] = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
        let (number, bytes) = unit.unwrap_or((text, 1));
        let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        let number: u64 = number.parse().ok().filter(|_| digits).ok_or("write it like 64Mi")?;
        match number.checked_mul(bytes) {
            Some(0) => Err("it must be more than 0".into()),
            Some(bytes) if bytes <= MOST_BYTES => Ok(Self(bytes)),
            _ => Err("it must be at most 16Gi".into()),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, bytes)| self.0.is_multiple_of(*bytes)) {
            Some((unit, bytes)) => write!(f, "{}{unit}", self.0 / bytes),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Nobody means more, and twice of it still is a number.
const MOST_BYTES: u64 = 16 << 30;
/// Paths grow with each level, so this also bounds what a listing takes in memory.
const MOST_LEVELS: u64 = 256;
/// More is no folder of definitions.
const MOST_FILES: u64 = 1_000_000;

/// See the module.
#[derive(Debug, Clone, ClapArgs)]
#[allow(clippy::struct_field_names, reason = "each is the most of something")]
pub struct BudgetArgs {
    /// Largest pack of one fetch from a repository; an object in it may take twice as much memory
    #[arg(
        long = "git-max-pack",
        value_name = "SIZE",
        default_value_t = Bytes(git::Limits::default().pack_bytes)
    )]
    max_pack: Bytes,
    /// Most files below the path of a GitSync
    #[arg(
        long = "git-max-files",
        value_name = "COUNT",
        default_value_t = git::Limits::default().files as u64,
        value_parser = clap::value_parser!(u64).range(1..=MOST_FILES)
    )]
    max_files: u64,
    /// Largest file that is read
    #[arg(
        long = "git-max-file-size",
        value_name = "SIZE",
        default_value_t = Bytes(git::Limits::default().file_bytes)
    )]
    max_file_size: Bytes,
    /// Most levels of folders below the path of a GitSync
    #[arg(
        long = "git-max-depth",
        value_name = "COUNT",
        default_value_t = git::Limits::default().depth as u64,
        value_parser = clap::value_parser!(u64).range(0..=MOST_LEVELS)
    )]
    max_depth: u64,
    /// Most YAML documents in one file
    #[arg(
        long = "git-max-documents",
        value_name = "COUNT",
        default_value_t = definition::Limits::default().documents as u64,
        value_parser = clap::value_parser!(u64).range(1..=MOST_FILES)
    )]
    max_documents: u64,
}

impl BudgetArgs {
    /// The budgets that the flags give.
    #[must_use]
    pub fn resolve(&self) -> (git::Limits, definition::Limits) {
        let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let git = git::Limits {
            pack_bytes: self.max_pack.0,
            files: count(self.max_files),
            file_bytes: self.max_file_size.0,
            depth: count(self.max_depth),
        };
        let definition = definition::Limits {
            file_bytes: self.max_file_size.0,
            documents: count(self.max_documents),
            ..definition::Limits::default()
        };
        (git, definition)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        budgets: BudgetArgs,
    }

    fn parse(args: &[&str]) -> Result<(git::Limits, definition::Limits), clap::Error> {
        let args = std::iter::once("program").chain(args.iter().copied());
        Program::try_parse_from(args).map(|program| program.budgets.resolve())
    }

    #[test]
    fn g6_without_flags_the_budgets_are_those_of_validate() {
        assert_eq!(parse(&[]).unwrap(), (git::Limits::default(), definition::Limits::default()));
    }

    #[test]
    fn g6_each_budget_has_a_flag() {
        let (git, definition) = parse(&[
            "--git-max-pack=1Gi",
            "--git-max-files=20000",
            "--git-max-file-size=2Mi",
            "--git-max-depth=3",
            "--git-max-documents=7",
        ])
        .unwrap();
        let expected =
            git::Limits { pack_bytes: 1 << 30, files: 20_000, file_bytes: 2 << 20, depth: 3 };
        assert_eq!(git, expected);
        let defaults = definition::Limits::default();
        assert_eq!(
            definition,
            definition::Limits { file_bytes: 2 << 20, documents: 7, ..defaults }
        );
    }

    #[test]
    fn g6_budgets_that_mean_nothing_are_refused() {
        for arg in [
            "--git-max-pack=0",
            "--git-max-pack=-1",
            "--git-max-pack=64MB",
            "--git-max-pack=Mi",
            "--git-max-pack=+1",
            "--git-max-pack=1.5Gi",
            "--git-max-pack=99999999999999999999Gi",
            "--git-max-pack=17179869184Gi",
            "--git-max-file-size=17Gi",
            "--git-max-files=0",
            "--git-max-depth=257",
            "--git-max-documents=0",
        ] {
            assert!(parse(&[arg]).is_err(), "{arg}");
        }
        for (text, bytes) in [("1", 1), ("1000", 1000), ("64Ki", 65_536), ("16Gi", 16 << 30)] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)));
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
