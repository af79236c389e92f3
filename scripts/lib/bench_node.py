"""P13, first half: from `git push` to an agent whose pod answers, on a real node, by stage. bench_p13.py runs it.

Each run pushes a new agent. Watches tell when each stage is reached: how long this program takes to see it is part of
the times, a few milliseconds. The limit is the same pod without Convoke: a Deployment with the agent's own pod
template, created through the API, until its pod is ready. Needs root. Standard library only.
"""

import json
import re
import statistics
import sys
import threading
import time

import agents_team as team
from agents_stage import Stage, condition, is_ready

NAMESPACE = team.NAMESPACE
# How long a run may take.
RUN_SECONDS = 120
# What a watch waits for before it asks anew.
WATCH_SECONDS = 300
# Between runs: what the last one has left is gone by then.
QUIET_SECONDS = 3
KINDS = ("gitsyncs", "agents", "deployments", "pods")

# Stages, in their order: (name, whether Convoke alone decides how long it takes).
STAGES = (
    ("push → Agent applied", True),
    ("→ Deployment there", True),
    ("→ pod there", False),
    ("→ container runs", False),
    ("→ pod Ready", False),
    ("→ Agent Ready", True),
    ("→ card read", True),
)


class Watches:
    """The first moment at which something was seen of an object."""

    def __init__(self, api, namespace, kinds, facts):
        self.api, self.namespace, self.kinds, self.facts = api, namespace, kinds, facts
        self.seen = {}
        self.changed = threading.Condition()
        self.ends = False

    def start(self):
        for kind in self.kinds:
            listed = json.loads(self.api.request("GET", self.api.path(kind, self.namespace)))
            version = listed["metadata"]["resourceVersion"]
            threading.Thread(target=self._follow, args=(kind, version), daemon=True).start()

    def _follow(self, kind, version):
        while not self.ends:
            query = f"?watch=true&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}"
            for line in self.api.lines(self.api.path(kind, self.namespace) + query, WATCH_SECONDS + 10):
                event, now = json.loads(line), time.monotonic()
                if event["type"] == "ERROR":
                    raise RuntimeError(f"the watch of {kind} failed: {event['object'].get('message')}")
                version = event["object"]["metadata"]["resourceVersion"]
                with self.changed:
                    for fact in self.facts(kind, event):
                        self.seen.setdefault(fact, now)
                    self.changed.notify_all()

    def when(self, *fact, seconds=RUN_SECONDS):
        """When a fact was seen; waits for it."""
        with self.changed:
            if not self.changed.wait_for(lambda: fact in self.seen, seconds):
                raise RuntimeError(f"not within {seconds} s: {' '.join(fact)}")
            return self.seen[fact]

    def word_after(self, *words, seconds=RUN_SECONDS):
        """The last word of the first fact that begins with these, and when it was seen; waits for it."""
        begins = lambda fact: fact[:-1] == words
        with self.changed:
            if not self.changed.wait_for(lambda: any(map(begins, self.seen)), seconds):
                raise RuntimeError(f"not within {seconds} s: {' '.join(words)} ...")
            fact = next(filter(begins, self.seen))
            return fact[-1], self.seen[fact]


def facts(kind, event):
    """What an event tells: tuples of words."""
    value = event["object"]
    name = value["metadata"]["name"]
    if event["type"] == "DELETED":
        return [(kind, name, "gone")]
    found = [(kind, name, "there")]
    if kind == "gitsyncs" and is_ready(value):
        applied = re.search(r"[0-9a-f]{40}", value["status"].get("lastAppliedRevision") or "")
        found.append((kind, name, applied[0] if applied else "nothing"))
    if kind == "agents":
        found += [(kind, name, "ready")] * is_ready(value)
        found += [(kind, name, "card")] * (condition(value, "CardRead")[0] == "True")
    if kind == "pods":
        labels = value["metadata"].get("labels", {})
        owner = labels.get("bench") or labels.get("convoke.dev/name", "")
        states = [one["state"] for one in value["status"].get("containerStatuses", [])]
        found = [("pod of", owner, "there")]
        found += [("pod of", owner, "runs")] * any("running" in state for state in states)
        found += [("pod of", owner, "ready")] * (condition(value, "Ready")[0] == "True")
    return found


def one_push(stage, watches, name):
    """Pushes a new agent; gives the moments at which the stages were reached, the push first."""
    agent = team.agent(name, model="direct", providerSecretRef={"name": "provider-key", "key": "key"})
    commit = stage.commit({f"{name}.json": json.dumps(agent, indent=1), f"{name}.md": f"You are {name}.\n"})
    began = time.monotonic()
    asked = {"metadata": {"annotations": {"convoke.dev/requestedAt": str(time.time_ns())}}}
    stage.api.merge("gitsyncs", NAMESPACE, NAMESPACE, asked)
    moments = [
        began,
        watches.when("agents", name, "there"),
        watches.when("deployments", f"agent-{name}", "there"),
        watches.when("pod of", name, "there"),
        watches.when("pod of", name, "runs"),
        watches.when("pod of", name, "ready"),
        watches.when("agents", name, "ready"),
        watches.when("agents", name, "card"),
    ]
    return moments, watches.when("gitsyncs", NAMESPACE, commit) - began


def limit(stage, watches, name):
    """How long a Deployment with the pod template of an agent takes until its pod is ready."""
    copied = stage.get("deployments", f"agent-{name}")["spec"]
    labels = {"bench": f"limit-{name}"}
    template = copied["template"]
    template["metadata"]["labels"] = labels
    spec = {"selector": {"matchLabels": labels}, "template": template}
    value = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"limit-{name}"}, "spec": spec}
    began = time.monotonic()
    stage.api.create("deployments", NAMESPACE, value)
    took = watches.when("pod of", f"limit-{name}", "ready") - began
    stage.api.delete("deployments", NAMESPACE, f"limit-{name}")
    return took


def measure(stage, runs):
    """The samples: one dictionary a run, in seconds."""
    watches = Watches(stage.api, NAMESPACE, KINDS, facts)
    watches.start()
    samples = []
    for run in range(runs):
        name = f"bench-{run}"
        moments, synced = one_push(stage, watches, name)
        took = [max(0.0, later - sooner) for sooner, later in zip(moments, moments[1:])]
        own = sum(seconds for seconds, (_, is_own) in zip(took, STAGES) if is_own)
        sample = {stage_name: seconds for (stage_name, _), seconds in zip(STAGES, took)}
        sample |= {"own share": own, "push → GitSync Ready": synced, "all": max(moments) - moments[0]}
        sample["limit: the same pod without Convoke"] = limit(stage, watches, name)
        samples.append(sample)
        print(f"run {run + 1} of {runs}: {sample['all']:.2f} s, own share {own:.2f} s", file=sys.stderr, flush=True)
        stage.push({f"{name}.json": None, f"{name}.md": None})
        watches.when("deployments", f"agent-{name}", "gone")
        time.sleep(QUIET_SECONDS)
    watches.ends = True
    return samples


def medians(title, samples, own):
    """The lines of a table with medians and extremes. `own` are the names of what Convoke alone decides."""
    lines = [f"| {title} | median | least | most | of Convoke |", "|---|---|---|---|---|"]
    for name in dict.fromkeys(name for sample in samples for name in sample):
        values = [sample[name] for sample in samples if name in sample]
        figures = " | ".join(f"{figure:.3f} s" for figure in (statistics.median(values), min(values), max(values)))
        lines.append(f"| {name} | {figures} | {'yes' if name in own else ''} |")
    return lines


def table(samples):
    """Medians and extremes."""
    own = {name for name, is_own in STAGES if is_own} | {"own share"}
    lines = medians("P13", samples, own)
    ratio = statistics.median(sample["all"] / sample["limit: the same pod without Convoke"] for sample in samples)
    return "\n".join([*lines, "", f"all ÷ limit: {ratio:.2f}, n = {len(samples)}; goal: own share ≤ 1 s"])


def samples_of(runs):
    """Starts all of it, and measures."""
    stage = Stage()
    try:
        stage.up()
        for kind, names in {"modelapis": ["shared", "direct"], "agents": ["coordinator", "writer", "plain"]}.items():
            for name in names:
                stage.ready(kind, name)
        return measure(stage, runs)
    finally:
        stage.remove()
