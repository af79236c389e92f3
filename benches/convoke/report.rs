//! (pure) What was measured: rows of samples, shown as a table for people or as JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::numbers::{quantile, ratio};
use super::options::Controllers;

/// What is to be reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// At most so many times the limit of the same run.
    Ratio(f64),
    /// At most that, in the row's unit.
    Value(f64),
    /// Only reported.
    Nothing,
}

/// What a row is about; samples of one key belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// For example `P2`.
    pub id: &'static str,
    /// What was measured.
    pub what: String,
    /// Agents in the repository.
    pub objects: usize,
    /// Controllers that ran.
    pub controllers: Controllers,
}

/// One line of the report.
#[derive(Debug, Clone)]
pub struct Row {
    /// What it is about.
    pub key: Key,
    /// Unit of the samples.
    pub unit: &'static str,
    /// Which quantile of the samples is shown (0.5: the median).
    pub shown: f64,
    /// What was measured.
    pub samples: Vec<f64>,
    /// What the machine can do, measured beside each sample; empty when there is no such thing.
    pub limits: Vec<f64>,
    /// What is to be reached.
    pub goal: Goal,
    /// Parts of it, in milliseconds.
    pub parts: BTreeMap<&'static str, Vec<f64>>,
}

impl Row {
    /// The shown quantile of the samples.
    pub fn value(&self) -> Option<f64> {
        quantile(&self.samples, self.shown)
    }

    /// The median of the limit.
    pub fn limit(&self) -> Option<f64> {
        quantile(&self.limits, 0.5)
    }

    /// The median of the ratios.
    pub fn ratio(&self) -> Option<f64> {
        ratio(&self.samples, &self.limits)
    }

    /// Whether the goal is reached; `None` when there is none.
    pub fn reached(&self) -> Option<bool> {
        match self.goal {
            Goal::Ratio(most) => self.ratio().map(|ratio| ratio <= most),
            Goal::Value(most) => self.value().map(|value| value <= most),
            Goal::Nothing => None,
        }
    }
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Report {
    /// Adds a sample to the row of that key; a new row is shown by its median and has no goal.
    pub fn add(
        &mut self,
        key: Key,
        unit: &'static str,
        sample: f64,
        limit: Option<f64>,
    ) -> &mut Row {
        let at = self.rows.iter().position(|row| row.key == key).unwrap_or_else(|| {
            self.rows.push(Row {
                key,
                unit,
                shown: 0.5,
                samples: Vec::new(),
                limits: Vec::new(),
                goal: Goal::Nothing,
                parts: BTreeMap::new(),
            });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        row.samples.push(sample);
        row.limits.extend(limit);
        row
    }

    /// Something that a reader of the numbers must know.
    pub fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// The rows in the order of the measurements, then of the sizes.
    pub fn sorted(&self) -> Vec<&Row> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        let place = |id| super::options::MEASUREMENTS.iter().position(|(known, _)| *known == id);
        // Stable: rows of one measurement stay in the order in which they came.
        rows.sort_by_key(|row| (place(row.key.id), row.key.objects, row.key.controllers));
        rows
    }

    /// The table, with notes below it.
    pub fn table(&self) -> String {
        let head = [
            "id",
            "what",
            "agents",
            "controllers",
            "measured",
            "limit",
            "ratio",
            "goal",
            "reached",
            "n",
        ];
        let mut lines = vec![head.map(str::to_owned)];
        for row in self.sorted() {
            lines.push([
                row.key.id.to_owned(),
                row.key.what.clone(),
                row.key.objects.to_string(),
                row.key.controllers.as_str().to_owned(),
                show(row.value(), row.unit),
                show(row.limit(), row.unit),
                row.ratio().map_or("-".into(), |ratio| format!("{ratio:.2}x")),
                match row.goal {
                    Goal::Ratio(most) => format!("<= {most}x"),
                    Goal::Value(most) => format!("<= {}", show(Some(most), row.unit)),
                    Goal::Nothing => "-".into(),
                },
                row.reached().map_or("-", |yes| if yes { "yes" } else { "no" }).to_owned(),
                row.samples.len().to_string(),
            ]);
        }
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths: Vec<_> = (0..head.len()).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for line in &lines {
            let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
                if (2..=8).contains(&column) && column != 3 {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                }
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        for row in self.sorted().into_iter().filter(|row| !row.parts.is_empty()) {
            let Key { id, what, objects, controllers } = &row.key;
            let part = |(name, samples): (&&str, &Vec<f64>)| {
                format!("{name} {:.0}", quantile(samples, 0.5).unwrap_or_default())
            };
            let parts: Vec<_> = row.parts.iter().map(part).collect();
            text += &format!(
                "{id} {what}, {objects}, {}: ms by stage: {}\n",
                controllers.as_str(),
                parts.join(", ")
            );
        }
        for note in &self.notes {
            text += &format!("note: {note}\n");
        }
        text
    }

    /// The same for programs, with every sample; `about` says on what and how it was measured.
    pub fn json(&self, about: Value) -> Value {
        let rows: Vec<_> = self
            .sorted()
            .into_iter()
            .map(|row| {
                json!({
                    "id": row.key.id,
                    "what": row.key.what,
                    "agents": row.key.objects,
                    "controllers": row.key.controllers.as_str(),
                    "unit": row.unit,
                    "quantile": row.shown,
                    "value": row.value(),
                    "limit": row.limit(),
                    "ratio": row.ratio(),
                    "goal": match row.goal {
                        Goal::Ratio(most) => json!({"ratio": most}),
                        Goal::Value(most) => json!({"value": most}),
                        Goal::Nothing => Value::Null,
                    },
                    "reached": row.reached(),
                    "samples": row.samples,
                    "limits": row.limits,
                    "partsMs": row.parts,
                })
            })
            .collect();
        json!({"about": about, "rows": rows, "notes": self.notes})
    }
}

/// A number with its unit, with about three digits.
fn show(value: Option<f64>, unit: &str) -> String {
    let Some(value) = value else { return "-".into() };
    let (value, unit) = match unit {
        "ms" if value >= 10_000.0 => (value / 1000.0, "s"),
        other => (value, other),
    };
    let digits = if value.fract() == 0.0 || value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}").trim_end().to_owned()
}
