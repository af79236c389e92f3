"""What the tests of agents share: the cluster, its agents, and what these answer. Standard library only."""

import calendar
import json
import time

from agents_stage import Stage, is_ready

READY = {
    "modelapis": ["shared", "direct"],
    "mcpservers": ["clock", "notes", "desk", "everything"],
    "agents": ["coordinator", "writer", "critic", "plain", "clerk"],
}

stage = Stage()


def moment(text):
    """A time of Kubernetes as seconds."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def endpoint(name):
    return stage.get("agents", name)["status"]["endpoint"]


def only_pod(name):
    """The pod of an agent, once there is no other and the agent is Ready."""

    def look():
        pods = stage.pods("agent", name)
        return is_ready(stage.get("agents", name)) and len(pods) == 1 and pods[0]

    return stage.eventually(f"one pod of {name}", look)


def answer(name, question, seconds=60):
    """The text of the answer of an agent; raises AssertionError when there is none."""
    task = stage.ask(endpoint(name), question, seconds)["result"]["task"]
    if not task.get("artifacts"):
        raise AssertionError(json.dumps(task)[:1000])
    return "".join(part.get("text", "") for part in task["artifacts"][0]["parts"])


def failure(name, question):
    """Why an agent gives no answer: (reason, message)."""
    task = stage.ask(endpoint(name), question)["result"]["task"]
    for part in task["status"].get("message", {}).get("parts", []):
        error = (part.get("data") or {}).get("error")
        if error:
            return error["reason"], error["message"]
    raise AssertionError(f"{question}: no failure: {json.dumps(task)[:1000]}")


def revision(name):
    """How often the pods of an agent were replaced."""
    deployment = stage.get("deployments", f"agent-{name}")
    return int(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"])


def completed(asked):
    """What `convoke ask` printed, if it is an answer."""
    return asked if asked["state"] == "completed" else None


def variable(name, variable):
    """A literal variable of the pods of an agent."""
    container = stage.get("deployments", f"agent-{name}")["spec"]["template"]["spec"]["containers"][0]
    return next((one.get("value") for one in container["env"] if one["name"] == variable), None)
