//! (pure) What to measure, as the command line says it.

use std::fmt;
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
    ("P8", "new agents pushed to all their children there (sizes up to 1,000)"),
    ("P9", "edit by hand to reverted"),
    ("P10", "restart: ready, settled, writes"),
    ("P11", "idle: writes and CPU"),
    ("P12", "acknowledgement of a webhook with many GitSyncs (runs with P14)"),
    ("P14", "many GitSyncs: first sync, idle, memory, disk, one change"),
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
    /// How long P11 looks on; P14 twice that.
    pub idle: Duration,
    /// Number of GitSyncs of P14.
    pub syncs: usize,
    /// Number of repositories that they follow.
    pub repositories: usize,
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
            syncs: 1000,
            repositories: 1,
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
                "--syncs" => options.syncs = number(&argument, &value()?)?,
                "--repositories" => options.repositories = number(&argument, &value()?)?,
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
        if options.repositories > options.syncs {
            return Err("--repositories: each is followed by a GitSync (--syncs)".to_owned());
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

    /// Whether anything but P8 is measured at this size with these controllers.
    fn applies(&self, size: usize, controllers: Controllers) -> bool {
        let each = ["P2", "P3", "P4", "P5", "P6", "P7"];
        let all = ["P9", "P10", "P11"];
        self.wants(&[Self::creation(size)])
            || self.wants(&each)
            || (controllers == Controllers::All && self.wants(&all))
    }

    /// What is run, each on a control plane of its own; what takes longest is run only once.
    pub fn plan(&self, first: bool) -> Vec<Run> {
        let mut plan = Vec::new();
        for &size in &self.sizes {
            for &controllers in &self.controllers {
                if self.applies(size, controllers) {
                    plan.push(Run::Agents(size, controllers));
                }
                // The API server needs the longer for a Service the more there are.
                if self.wants(&["P8"]) && controllers == Controllers::All && size <= 1000 {
                    plan.push(Run::Children(size));
                }
            }
        }
        if first && self.wants(&["P12", "P14"]) {
            plan.extend(self.controllers.iter().map(|&c| Run::Syncs(self.syncs, c)));
        }
        plan
    }
}

/// What is run on one control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// That many agents of one GitSync: all but P8 and P14.
    Agents(usize, Controllers),
    /// P8: that many agents and their children.
    Children(usize),
    /// P12 and P14: that many GitSyncs.
    Syncs(usize, Controllers),
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agents(size, controllers) => {
                write!(f, "{size} agents, controllers {}", controllers.as_str())
            }
            Self::Children(size) => write!(f, "children of {size} agents"),
            Self::Syncs(syncs, controllers) => {
                write!(f, "{syncs} GitSyncs, controllers {}", controllers.as_str())
            }
        }
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
