//! The operator's flags that limit how large one repository may be.

use clap::Args as ClapArgs;

use crate::{definition, git};

/// Flags of `convoke operator`.
#[derive(Debug, Clone, ClapArgs)]
#[allow(clippy::struct_field_names)] // the names of the flags
pub struct BudgetArgs {
    /// Mebibytes of everything that was fetched and is kept on disk, for all repositories
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(64..=1_048_576))]
    git_max_disk: u64,
    /// Mebibytes of one fetched pack
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096))]
    git_max_pack: u64,
    /// Files below the path of a GitSync
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    git_max_files: u64,
    /// Kibibytes of one definition file
    #[arg(long, value_name = "KIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    git_max_file_size: u64,
    /// Levels of folders below the path of a GitSync
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=256))]
    git_max_depth: u64,
    /// Documents in one file
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    git_max_documents: u64,
    /// Definitions below the path of a GitSync
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    git_max_objects: u64,
    /// Mebibytes of all definition files below the path of a GitSync, with the files that they name
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096))]
    git_max_total: u64,
}

/// The budgets that apply to each repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budgets {
    /// The budgets of fetching a commit and listing its files.
    pub git: git::Limits,
    /// The budgets of parsing its definitions.
    pub definition: definition::Limits,
}

impl BudgetArgs {
    /// Bytes of everything that was fetched and is kept on disk.
    #[must_use]
    pub const fn disk_bytes(&self) -> u64 {
        self.git_max_disk << 20
    }

    /// The budgets that the flags give.
    #[must_use]
    pub fn resolve(self) -> Budgets {
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let file_bytes = self.git_max_file_size << 10;
        Budgets {
            git: git::Limits {
                pack_bytes: self.git_max_pack << 20,
                files: count(self.git_max_files),
                file_bytes,
                depth: count(self.git_max_depth),
            },
            definition: definition::Limits {
                file_bytes,
                documents: count(self.git_max_documents),
                total_documents: count(self.git_max_objects),
                total_bytes: self.git_max_total << 20,
                ..definition::Limits::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        budgets: BudgetArgs,
    }

    #[test]
    fn g6_flags_default_to_the_budgets_of_validate() {
        let budgets = |args: &[&str]| Flags::parse_from(args).budgets.resolve();
        assert_eq!(budgets(&["convoke"]), Budgets::default());
        let less = budgets(&["convoke", "--git-max-files", "7", "--git-max-file-size=2"]);
        assert_eq!((less.git.files, less.git.file_bytes), (7, 2048));
        assert_eq!(less.definition.file_bytes, 2048);
        let less = budgets(&["convoke", "--git-max-objects", "7", "--git-max-total=2"]);
        assert_eq!((less.definition.total_documents, less.definition.total_bytes), (7, 2 << 20));
        assert!(Flags::try_parse_from(["convoke", "--git-max-pack", "0"]).is_err());
    }
}
