"""P13, second half: from `git push` to an agent that runs the new image, on a real Tekton and a real node, by stage.

bench_p13.py runs it. Each run changes one file of a source folder. Watches tell when each stage is
reached; how long this program takes to see it is part of the times. Needs root. Standard library only.
"""

import sys
import time

from bench_node import Watches, is_ready, medians
from builds_stage import APPENDED, NAMESPACE, SOURCE, BuildStage

KINDS = ("agentbuilds", "pipelineruns", "deployments", "agents", "pods")
# The strategies: (name, AgentBuild and Agent, the file that changes).
STRATEGIES = (("Dockerfile", "reviewer", f"{SOURCE}/note"), ("Append", "appended", f"{APPENDED}/note"))

# Stages, in their order: (name, whether Convoke alone decides how long it takes).
STAGES = (
    ("push → PipelineRun there", True),
    ("→ its pod there", False),
    ("→ its first step runs", False),
    ("→ PipelineRun ended", False),
    ("→ AgentBuild Succeeded", True),
    ("→ Deployment with the image", True),
    ("→ agent's pod with it there", False),
    ("→ that pod Ready", False),
    ("→ Agent Ready with it", True),
)


def image_of(spec):
    """The image of the first container."""
    return spec["containers"][0]["image"]


def facts(kind, event):
    """What an event tells: tuples of words."""
    value = event["object"]
    meta, status = value["metadata"], value.get("status", {})
    name = meta["name"]
    if kind == "pipelineruns":
        commit = meta["annotations"].get("convoke.dev/commit", "")
        ended = [one["status"] for one in status.get("conditions", []) if one["type"] == "Succeeded"]
        return [("run of", commit, "there")] + [("run of", commit, "ended")] * (ended not in ([], ["Unknown"]))
    if kind == "agentbuilds" and status.get("phase") == "Succeeded":
        return [("image of", status.get("lastBuiltCommit"), status["builtImage"])]
    if kind == "agents" and is_ready(value):
        return [("agent ready", status.get("image"))]
    if kind == "deployments":
        return [("deployment", image_of(value["spec"]["template"]["spec"]))]
    if kind == "pods":
        labels = meta.get("labels", {})
        states = [one["state"] for one in status.get("containerStatuses", [])]
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))
        of = ("pod of", labels.get("tekton.dev/pipelineRun") or image_of(value["spec"]))
        began = any("running" in state or "terminated" in state for state in states)
        return [(*of, "there")] + [(*of, "runs")] * began + [(*of, "ready")] * ready
    return []


def run_of(stage, build, commit):
    """The name of the PipelineRun of a commit."""
    runs = stage.api.list("pipelineruns", NAMESPACE, f"convoke.dev/name={build}")
    (name,) = [r["metadata"]["name"] for r in runs if r["metadata"]["annotations"]["convoke.dev/commit"] == commit]
    return name


def one_push(stage, watches, build, file, text):
    """Pushes another source; gives the moments at which the stages were reached, the push first, and how long the steps took."""
    commit = stage.commit({file: text})
    began = time.monotonic()
    asked = {"metadata": {"annotations": {"convoke.dev/requestedAt": str(time.time_ns())}}}
    stage.api.merge("gitsyncs", NAMESPACE, NAMESPACE, asked)
    created = watches.when("run of", commit, "there")
    run = run_of(stage, build, commit)
    ended = watches.when("run of", commit, "ended")
    image, told = watches.word_after("image of", commit)
    moments = [
        began,
        created,
        watches.when("pod of", run, "there"),
        watches.when("pod of", run, "runs"),
        ended,
        told,
        watches.when("deployment", image),
        watches.when("pod of", image, "there"),
        watches.when("pod of", image, "ready"),
        watches.when("agent ready", image),
    ]
    return moments, stage.get("agentbuilds", build)["status"]["steps"]


def measure(stage, runs):
    """The samples of each strategy: one dictionary a run, in seconds."""
    stage.built(stage.git("rev-parse", "HEAD"))
    stage.push(stage.appended_files("first\n"))
    for kind in ("agentbuilds", "agents"):
        stage.ready(kind, "appended")
    watches = Watches(stage.api, NAMESPACE, KINDS, facts)
    watches.start()
    samples = {name: measured(stage, watches, build, file, runs) for name, build, file in STRATEGIES}
    watches.ends = True
    return samples


def one_revert(stage, name, file, text, image):
    """Seconds from a push that gives a file an earlier text to the Deployment with the image of then, and to the Agent that is Ready with it."""
    commit = stage.commit({file: text})
    began, seconds = time.monotonic(), []
    stage.api.merge("gitsyncs", NAMESPACE, NAMESPACE, {"metadata": {"annotations": {"convoke.dev/requestedAt": commit}}})
    rolled = lambda: image_of(stage.get("deployments", f"agent-{name}")["spec"]["template"]["spec"]) == image  # noqa: E731

    def runs():
        agent = stage.get("agents", name)
        return is_ready(agent) and agent["status"].get("image") == image

    for reached in (rolled, runs):
        while not reached():
            if time.monotonic() - began > 120:
                raise AssertionError(f"{name} does not go back to {image}")
            time.sleep(0.02)
        seconds.append(time.monotonic() - began)
    return {"push of a revert → Deployment with the image": seconds[0], "push of a revert → Agent Ready with it": seconds[1]}


def measured(stage, watches, build, file, runs):
    """The samples of one build."""
    samples, texts = [], []
    for run in range(runs):
        text = f"run {run} {time.time_ns()}\n"
        moments, steps = one_push(stage, watches, build, file, text)
        texts.append((text, stage.get("agentbuilds", build)["status"]["builtImage"]))
        took = [max(0.0, later - sooner) for sooner, later in zip(moments, moments[1:])]
        own = sum(seconds for seconds, (_, is_own) in zip(took, STAGES) if is_own)
        sample = {name: seconds for (name, _), seconds in zip(STAGES, took)}
        sample |= {f"step {step['name']}, as Tekton says": float(step["seconds"]) for step in steps}
        sample |= {"own share": own, "all": max(moments) - moments[0]}
        if len(texts) > 1:
            sample |= one_revert(stage, build, file, *texts[-2])
            one_revert(stage, build, file, *texts[-1])
        samples.append(sample)
        print(f"{build} {run + 1} of {runs}: {sample['all']:.2f} s, own share {own:.2f} s", file=sys.stderr, flush=True)
    return samples


def table(samples):
    """Medians and extremes of each strategy."""
    own = {name for name, is_own in STAGES if is_own} | {"own share"}
    tables = []
    for name, values in samples.items():
        goal = "own share ≤ 1 s" + (", all ≤ 15 s" if name == "Append" else "")
        lines = medians(f"P13 of a build, strategy {name}", values, own)
        tables.append("\n".join([*lines, "", f"n = {len(values)}; goal: {goal}"]))
    return "\n\n".join(tables)


def samples_of(runs):
    """Starts all of it, and measures."""
    stage = BuildStage()
    # That of agents, as users have it.
    stage.base = "agent"
    try:
        stage.up()
        return measure(stage, runs)
    finally:
        stage.remove()
