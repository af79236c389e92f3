//! (pure) The allow-list that every TaskSpec passes (B3), and the rule that values never enter script text (B4).
//!
//! A field that is not listed is refused, so a field that Tekton or Kubernetes adds later is refused too. Credentials reach a step
//! only through workspaces: Secrets are not on the list.
#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use serde_json::{Map, Value};

use super::profile::BuildProfile;

/// One field that a TaskSpec must not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Where, as in `steps[0].securityContext.privileged`.
    pub path: String,
    /// Why.
    pub why: &'static str,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.why)
    }
}

const ONLY_SETFCAP: &str = "the only capability that may be added is SETFCAP";
const NOT_OF_PROFILE: &str = "the build profile does not add this capability";
const NOT_ALLOWED: &str = "this field is not allowed in a build step";

const TASK: &[&str] =
    &["description", "displayName", "params", "workspaces", "results", "volumes", "steps"];
/// What a TaskSpec may have and a build may not, with what to do.
const ELSEWHERE: [(&str, &str); 2] = [
    ("sidecars", "the steps of a build run in one pod, one after the other: start it in a step"),
    ("stepTemplate", "the steps of a build run in one pod: write its fields into each step"),
];
const CONTAINER: &[&str] = &[
    "name",
    "image",
    "command",
    "args",
    "script",
    "env",
    "envFrom",
    "workingDir",
    "computeResources",
    "securityContext",
    "imagePullPolicy",
    "volumeMounts",
    "timeout",
    "onError",
    "stdoutConfig",
    "stderrConfig",
    "results",
];
const SECURITY_CONTEXT: &[&str] = &[
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "readOnlyRootFilesystem",
    "allowPrivilegeEscalation",
    "privileged",
    "capabilities",
    "seccompProfile",
    "appArmorProfile",
];
/// The capability that buildah needs to write file capabilities. It is also on the list of the Pod Security level "baseline".
const CAPABILITIES: &[&str] = &["SETFCAP"];

/// What a security context may ask for besides the rest of the list.
struct Allowance {
    capabilities: &'static [&'static str],
    unconfined: &'static [&'static str],
    privileged: bool,
    /// Whether it must name a user that is not root.
    user: bool,
}

/// What every step may ask for.
const USUAL: Allowance =
    Allowance { capabilities: CAPABILITIES, unconfined: &[], privileged: false, user: false };

/// What the steps of a profile may ask for.
const fn allowance(profile: BuildProfile) -> Allowance {
    match profile {
        BuildProfile::Baseline => USUAL,
        // In the user namespace of the pod. AppArmor's default refuses mounts in there, too.
        BuildProfile::Userns => Allowance {
            capabilities: &["SETFCAP", "SYS_ADMIN"],
            unconfined: &["appArmorProfile"],
            privileged: false,
            user: false,
        },
        BuildProfile::Rootless => Allowance {
            capabilities: &["SETFCAP", "SETUID", "SETGID"],
            unconfined: &["seccompProfile", "appArmorProfile"],
            privileged: false,
            user: true,
        },
        BuildProfile::Privileged => {
            Allowance { capabilities: CAPABILITIES, unconfined: &[], privileged: true, user: false }
        }
    }
}
const VOLUMES: &[&str] = &["name", "emptyDir", "configMap", "downwardAPI", "projected"];
const PROJECTED: &[&str] = &["configMap", "downwardAPI"];

/// Everything that the pods of this TaskSpec must not have.
#[must_use]
pub fn refused(task_spec: &Value) -> Vec<Refused> {
    let mut check = Check::default();
    check.task(task_spec);
    check.refused
}

/// Everything that a security context of a profile must not have. `path` is where it is.
#[must_use]
pub fn refused_in_profile(profile: BuildProfile, context: &Value, path: &str) -> Vec<Refused> {
    let mut check = Check::default();
    check.security_context(context, path, &allowance(profile));
    check.refused
}

#[derive(Default)]
struct Check {
    refused: Vec<Refused>,
}

impl Check {
    fn refuse(&mut self, path: impl Into<String>, why: &'static str) {
        self.refused.push(Refused { path: path.into(), why });
    }

    /// The map at a place, with every key on the list. `null` is nothing.
    fn map<'v>(
        &mut self,
        value: &'v Value,
        path: &str,
        allowed: &[&str],
    ) -> Option<&'v Map<String, Value>> {
        let map = match value {
            Value::Object(map) => map,
            Value::Null => return None,
            _ => {
                self.refuse(path, "must be a map");
                return None;
            }
        };
        for key in map.keys().filter(|key| !allowed.contains(&key.as_str())) {
            let elsewhere = ELSEWHERE.iter().find(|(name, _)| path.is_empty() && name == key);
            let why = elsewhere.map_or(NOT_ALLOWED, |(_, why)| why);
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            self.refuse(path, why);
        }
        Some(map)
    }

    fn list<'v>(&mut self, value: Option<&'v Value>, path: &str) -> Vec<(String, &'v Value)> {
        match value {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => {
                list.iter().enumerate().map(|(i, item)| (format!("{path}[{i}]"), item)).collect()
            }
            Some(_) => {
                self.refuse(path, "must be a list");
                Vec::new()
            }
        }
    }

    fn task(&mut self, spec: &Value) {
        let Some(task) = self.map(spec, "", TASK) else { return };
        for (path, step) in self.list(task.get("steps"), "steps") {
            self.container(step, &path);
        }
        for (path, volume) in self.list(task.get("volumes"), "volumes") {
            self.volume(volume, &path);
        }
    }

    fn volume(&mut self, volume: &Value, path: &str) {
        let Some(volume) = self.map(volume, path, VOLUMES) else { return };
        let Some(projected) = volume.get("projected") else { return };
        let path = format!("{path}.projected");
        let Some(projected) = self.map(projected, &path, &["sources", "defaultMode"]) else {
            return;
        };
        for (path, source) in self.list(projected.get("sources"), &format!("{path}.sources")) {
            self.map(source, &path, PROJECTED);
        }
    }

    fn container(&mut self, container: &Value, path: &str) {
        let Some(container) = self.map(container, path, CONTAINER) else { return };
        if let Some(context) = container.get("securityContext") {
            self.security_context(context, &format!("{path}.securityContext"), &USUAL);
        }
        for (path, variable) in self.list(container.get("env"), &format!("{path}.env")) {
            let Some(variable) = self.map(variable, &path, &["name", "value", "valueFrom"]) else {
                continue;
            };
            if let Some(from) = variable.get("valueFrom") {
                let allowed = &["configMapKeyRef", "fieldRef", "resourceFieldRef"];
                self.map(from, &format!("{path}.valueFrom"), allowed);
            }
        }
        for (path, from) in self.list(container.get("envFrom"), &format!("{path}.envFrom")) {
            self.map(from, &path, &["prefix", "configMapRef"]);
        }
        self.script(container, path);
    }

    fn security_context(&mut self, context: &Value, path: &str, allowed: &Allowance) {
        let Some(context) = self.map(context, path, SECURITY_CONTEXT) else { return };
        let privileged = context.get("privileged").filter(|value| **value != Value::Bool(false));
        if privileged.is_some_and(|value| !(allowed.privileged && value.is_boolean())) {
            self.refuse(format!("{path}.privileged"), "privileged containers are not allowed");
        }
        if let Some(capabilities) = context.get("capabilities") {
            let path = format!("{path}.capabilities");
            if let Some(capabilities) = self.map(capabilities, &path, &["add", "drop"]) {
                for (path, name) in self.list(capabilities.get("add"), &format!("{path}.add")) {
                    if !name.as_str().is_some_and(|name| allowed.capabilities.contains(&name)) {
                        let is_usual = allowed.capabilities == CAPABILITIES;
                        let why = if is_usual { ONLY_SETFCAP } else { NOT_OF_PROFILE };
                        self.refuse(path, why);
                    }
                }
            }
        }
        for profile in ["seccompProfile", "appArmorProfile"] {
            let Some(value) = context.get(profile) else { continue };
            let path = format!("{path}.{profile}");
            let Some(value) = self.map(value, &path, &["type", "localhostProfile"]) else {
                continue;
            };
            let kind = value.get("type").and_then(Value::as_str);
            if kind == Some("Unconfined") && allowed.unconfined.contains(&profile) {
                continue;
            }
            if !matches!(kind, Some("RuntimeDefault" | "Localhost")) {
                self.refuse(format!("{path}.type"), "must be RuntimeDefault or Localhost");
            }
        }
        let user = context.get("runAsUser").and_then(Value::as_u64);
        if allowed.user && user.is_none_or(|user| user == 0) {
            self.refuse(format!("{path}.runAsUser"), "must be a user that is not root");
        }
    }

    /// B4: a value that becomes part of a program's text is a program. Values come as environment or arguments.
    fn script(&mut self, container: &Map<String, Value>, path: &str) {
        const WHY: &str = "values must not enter script text: pass them as env or args";
        if container.get("script").and_then(Value::as_str).is_some_and(has_value) {
            self.refuse(format!("{path}.script"), WHY);
        }
        let command = self.list(container.get("command"), &format!("{path}.command"));
        let args = self.list(container.get("args"), &format!("{path}.args"));
        let words: Vec<_> = command.iter().chain(&args).collect();
        // `sh -c TEXT`, `bash -euc TEXT`: the words are program text, too.
        let has_script =
            container.get("script").and_then(Value::as_str).is_some_and(|s| !s.is_empty());
        let is_text = !has_script
            && words.iter().any(|(_, word)| word.as_str().is_some_and(takes_program_text));
        for (place, word) in words {
            let in_command = command.iter().any(|(p, _)| p == place);
            if (is_text || in_command) && word.as_str().is_some_and(has_value) {
                self.refuse(place.clone(), WHY);
            }
        }
    }
}

/// Whether Tekton would put a value of a parameter or of a result into this text.
fn has_value(text: &str) -> bool {
    text.match_indices("$(").any(|(at, _)| {
        let inside = text.get(at + 2..).unwrap_or_default();
        ["params", "inputs", "tasks", "steps", "finally"]
            .iter()
            .any(|head| inside.strip_prefix(head).is_some_and(|rest| rest.starts_with(['.', '['])))
    })
}

/// Options like `-c`, `-ec`, `--command`, `-e` of perl and node: the next word is a program.
fn takes_program_text(word: &str) -> bool {
    let short =
        |letters: &str| !letters.is_empty() && letters.bytes().all(|b| b.is_ascii_alphabetic());
    match word.strip_prefix("--") {
        Some(long) => matches!(long, "command" | "eval"),
        None => word.strip_prefix('-').is_some_and(|s| short(s) && (s.ends_with('c') || s == "e")),
    }
}

#[cfg(test)]
#[path = "tests/pod_policy.rs"]
mod tests;
