//! The generated repository: one model and N agents, and the same agents as manifests.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::options::Options;

/// Name of the model that every agent uses.
const MODEL: &str = "shared-model";

/// Shape of the repository.
#[derive(Debug, Clone, Copy)]
pub struct Fleet {
    /// Number of agents.
    pub size: usize,
    /// Agents in one folder.
    files_per_folder: usize,
    /// Length of one agent's instructions.
    bytes: usize,
}

impl Fleet {
    /// A fleet of that size.
    pub fn new(size: usize, options: &Options) -> Self {
        Self { size, files_per_folder: options.files_per_folder, bytes: options.bytes }
    }

    /// A fleet in folders of another size, one for each of several GitSyncs.
    pub fn in_folders_of(files_per_folder: usize, size: usize, options: &Options) -> Self {
        Self { size, files_per_folder, bytes: options.bytes }
    }

    /// The model as an object, for namespaces whose repository does not have it.
    pub fn model_manifest() -> Value {
        json!({
            "apiVersion": "convoke.dev/v1alpha1", "kind": "ModelAPI", "metadata": {"name": MODEL},
            "spec": {"mode": "External", "external": {"url": "https://models.example.com/v1"}},
        })
    }

    /// Path and content of the model's file. It runs elsewhere, so agents wait for nothing.
    pub fn model() -> (&'static str, &'static str) {
        (
            "models/shared-model.yaml",
            "apiVersion: convoke.dev/v1alpha1\nkind: ModelAPI\nmetadata:\n  name: shared-model\nspec:\n  \
             mode: External\n  external:\n    url: https://models.example.com/v1\n",
        )
    }

    /// Name of an agent.
    pub fn name(index: usize) -> String {
        format!("agent-{index:05}")
    }

    /// Where its file is.
    pub fn path(&self, index: usize) -> String {
        format!("{}/{}.yaml", Self::folder(index / self.files_per_folder), Self::name(index))
    }

    /// A folder of agents, by its number.
    pub fn folder(number: usize) -> String {
        format!("agents/team-{number:03}")
    }

    /// Description of an agent: what P9 changes by hand.
    pub fn description(index: usize) -> String {
        format!("Answers questions about area {index}.")
    }

    /// Its instructions, different for each agent and revision.
    fn instructions(&self, index: usize, revision: usize) -> String {
        let mut text =
            format!("You are agent {index}. These are your rules, revision {revision}.\n");
        let mut line = 0;
        while text.len() < self.bytes {
            line += 1;
            let _ = writeln!(
                text,
                "Rule {line}: ask {} when a question is not yours.",
                (index * 31 + line * 17) % 9973
            );
        }
        text
    }

    /// The file of an agent, as a person writes it.
    pub fn document(&self, index: usize, revision: usize) -> String {
        let instructions = self.instructions(index, revision).replace('\n', "\n      ");
        format!(
            "apiVersion: convoke.dev/v1alpha1\nkind: Agent\nmetadata:\n  name: {}\n  labels:\n    team: team-{:03}\nspec:\n  \
             description: {}\n  modelAPI:\n    name: {MODEL}\n  model: llama-3.3-70b-instruct\n  config:\n    \
             instructions: |\n      {}\n    agenticLoop:\n      maxSteps: 12\n",
            Self::name(index),
            index / self.files_per_folder,
            Self::description(index),
            instructions.trim_end(),
        )
    }

    /// The manifest that Convoke makes of that file, in a namespace. Ids of the sync and the commit are made up, of
    /// the right length.
    pub fn manifest(&self, index: usize, revision: usize, namespace: &str) -> Value {
        let name = Self::name(index);
        json!({
            "apiVersion": "convoke.dev/v1alpha1",
            "kind": "Agent",
            "metadata": {
                "name": name,
                "labels": {"team": format!("team-{:03}", index / self.files_per_folder)},
                "annotations": {
                    "convoke.dev/owner": format!(
                        "00000000-0000-4000-8000-000000000000/{namespace}/main/Agent/{namespace}/{name}"
                    ),
                    "convoke.dev/applied": format!("{:032x}", index * 1_000_003 + revision),
                    "convoke.dev/commit": format!("{revision:040x}"),
                    "convoke.dev/source": format!("{}:1", self.path(index)),
                },
            },
            "spec": {
                "description": Self::description(index),
                "modelAPI": {"name": MODEL},
                "model": "llama-3.3-70b-instruct",
                "config": {
                    "instructions": self.instructions(index, revision),
                    "agenticLoop": {"maxSteps": 12},
                },
            },
        })
    }
}
