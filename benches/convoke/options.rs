//! (pure) What to measure, as the command line says it.

use std::time::Duration;

/// Everything that can be measured, with what it is.
pub const MEASUREMENTS: &[(&str, &str)] = &[
    ("P1", "new agents pushed to applied (sizes up to 1,000)"),
    ("P1b", "the same for sizes above 1,000"),
    ("P2", "one changed file pushed to applied"),
    ("P3", "all files changed"),
    ("P4", "one agent in ten pruned"),
    ("P5", "requests of a sync with nothing changed"),
    ("P6", "peak memory of the operator"),
    ("P7", "CPU time of a one-file change"),
    ("P9", "edit by hand to reverted"),
    ("P10", "restart: ready, settled, writes"),
    ("P11", "idle: writes and CPU"),
];

/// Which controllers the operator runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controllers {
    /// The syncer alone.
    None,
    /// Everything.
    All,
}

impl Controllers {
    /// As the operator's flag says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::All => "all",
        }
    }
}

/// What to measure, and how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Ids of [`MEASUREMENTS`].
    pub ids: Vec<String>,
    /// One JSON document instead of the table.
    pub json: bool,
    /// Numbers of agents.
    pub sizes: Vec<usize>,
    /// Runs of each size: the table shows medians.
    pub runs: usize,
    /// With which controllers.
    pub controllers: Vec<Controllers>,
    /// Files in one folder of the repository.
    pub files_per_folder: usize,
    /// Length of one agent's instructions in bytes.
    pub bytes: usize,
    /// How long no write may happen before a step starts.
    pub quiet: Duration,
    /// How long P11 looks on.
    pub idle: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ids: MEASUREMENTS.iter().map(|(id, _)| (*id).to_owned()).collect(),
            json: false,
            sizes: vec![1000, 5000],
            runs: 5,
            controllers: vec![Controllers::None, Controllers::All],
            files_per_folder: 100,
            bytes: 600,
            quiet: Duration::from_secs(5),
            idle: Duration::from_secs(60),
        }
    }
}

impl Options {
    /// Reads the arguments after the program's name.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self::default();
        let mut ids = Vec::new();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                // Cargo adds it.
                "--bench" => {}
                "--json" => options.json = true,
                "--sizes" => options.sizes = numbers(&argument, &value()?)?,
                "--runs" => options.runs = number(&argument, &value()?)?,
                "--controllers" => options.controllers = controllers(&value()?)?,
                "--files-per-folder" => options.files_per_folder = number(&argument, &value()?)?,
                "--bytes" => options.bytes = number(&argument, &value()?)?,
                "--quiet" => options.quiet = seconds(&argument, &value()?)?,
                "--idle" => options.idle = seconds(&argument, &value()?)?,
                id if MEASUREMENTS.iter().any(|(known, _)| *known == id) => ids.push(id.to_owned()),
                other if other.starts_with('-') => return Err(format!("unknown option {other}")),
                other => {
                    let known: Vec<_> = MEASUREMENTS.iter().map(|(id, _)| *id).collect();
                    return Err(format!(
                        "unknown measurement {other}; there are {}",
                        known.join(", ")
                    ));
                }
            }
        }
        if !ids.is_empty() {
            options.ids = ids;
        }
        Ok(options)
    }

    /// Whether one of these is wanted.
    pub fn wants(&self, ids: &[&str]) -> bool {
        self.ids.iter().any(|id| ids.contains(&id.as_str()))
    }

    /// The id of the creation of that many agents.
    pub fn creation(size: usize) -> &'static str {
        if size > 1000 { "P1b" } else { "P1" }
    }

    /// Whether anything is measured at this size with these controllers.
    pub fn applies(&self, size: usize, controllers: Controllers) -> bool {
        let each = ["P2", "P3", "P4", "P5", "P6", "P7"];
        let all = ["P9", "P10", "P11"];
        self.wants(&[Self::creation(size)])
            || self.wants(&each)
            || (controllers == Controllers::All && self.wants(&all))
    }
}

fn number(option: &str, text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{option}: {text:?} is no number above zero")),
    }
}

fn numbers(option: &str, text: &str) -> Result<Vec<usize>, String> {
    text.split(',').map(|part| number(option, part)).collect()
}

fn seconds(option: &str, text: &str) -> Result<Duration, String> {
    number(option, text).map(|seconds| Duration::from_secs(seconds as u64))
}

fn controllers(text: &str) -> Result<Vec<Controllers>, String> {
    let one = |part| match part {
        "none" => Ok(Controllers::None),
        "all" => Ok(Controllers::All),
        other => Err(format!("--controllers: {other:?} is neither none nor all")),
    };
    text.split(',').map(one).collect()
}
