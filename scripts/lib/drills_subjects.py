"""What the drills break: definitions, and how it is known that one does its job. Standard library only."""

import json
import re
import uuid

import agents_team as team
from drills import Subject
from kube_api import Refused

CARD = "/.well-known/agent-card.json"


def meta(value, namespace, **more):
    """An object in a namespace."""
    return {**value, "metadata": {**value["metadata"], "namespace": namespace, **more}}


def secret(namespace, name, **data):
    """A Secret that pods may read."""
    value = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}
    return meta(value, namespace, labels={"convoke.dev/agents": "allow"})


def settings(namespace):
    """A ConfigMap that pods may read."""
    value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"color": "blue"}}
    return meta(value, namespace, labels={"convoke.dev/agents": "allow"})


def provider_key(namespace):
    return secret(namespace, "provider-key", key=team.PROVIDER_KEY)


def external(namespace, name, url=team.PROVIDER_URL):
    return meta(team.ours("ModelAPI", name, mode="External", external={"url": url}), namespace)


def proxy(namespace, name, url):
    """A model proxy in front of the model at an address."""
    key = {"secretKeyRef": {"name": "provider-key", "key": "key"}}
    how = {"provider": "openai", "apiBase": url, "models": ["small"], "apiKeyFrom": key}
    return meta(team.ours("ModelAPI", name, mode="Proxy", proxy=how), namespace)


def model_pod(stage, name):
    """A model of one's own, in a pod; gives the objects and the address."""
    model = {
        "scripted_model.py": (stage.root / "runtime/tests/scripted_model.py").read_text(),
        "script.json": json.dumps(team.SCRIPT),
    }
    command = ["python", "/files/scripted_model.py", "--port", "8000", "--script", "/files/script.json"]
    address = f"http://{name}.{team.PROVIDER}.svc.cluster.local:8000/v1"
    return team.in_pod(name, stage.images["python"], model, command, "/health"), address


def web_agent(stage, namespace, name, model="plain"):
    """An agent that is nothing but a card."""
    env = [{"name": "WEB_CARD", "value": json.dumps(team.card(name))}]
    small = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
    spec = {"modelAPI": {"name": model}, "model": "small", "image": stage.images["web"], "env": env, "resources": small}
    return meta(team.ours("Agent", name, **spec), namespace)


def expect(is_so, text):
    if not is_so:
        raise AssertionError(text)


def pod_names(subject):
    return [pod["metadata"]["name"] for pod in subject.pods()]


def answers(pattern=""):
    """An agent answers a question that nobody has asked before, with what the pattern says besides."""

    def check(subject):
        question = f"ping {uuid.uuid4().hex}"
        text = json.dumps(subject.stage.ask(subject.endpoint(), question, 20)["result"]["task"].get("artifacts"))
        expect(question in text and re.search(pattern, text), text[:300])

    return check


def shows_card(subject):
    """The card at the endpoint is the agent's."""
    status, text = subject.stage.probe(f"{subject.endpoint()}{CARD}", seconds=5)
    expect(status == 200 and json.loads(text)["name"] == subject.name, f"HTTP {status}: {text[:200]}")


def call(subject, method, params, url=None):
    """The result of a request to a tool server."""
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    status, text = subject.stage.probe(url or subject.endpoint(), request, seconds=5)
    expect(status == 200, f"HTTP {status}: {text[:200]}")
    data = next((line[6:] for line in text.splitlines() if line.startswith("data: {")), text)
    return json.loads(data)["result"]


def tells_nonce(subject):
    """The tool tells which pod has run it: one of the server's own."""
    result = json.dumps(call(subject, "tools/call", {"name": "nonce", "arguments": {}}))
    expect(any(name in result for name in pod_names(subject)), result[:300])


def has_tools(subject):
    expect(call(subject, "tools/list", {})["tools"], "no tools")


def is_web(path):
    """The program `web` answers at the endpoint, from a pod of the subject."""

    def check(subject):
        status, text = subject.stage.probe(f"{subject.endpoint()}{path}", seconds=5)
        expect(status == 200 and json.loads(text)["host"] in pod_names(subject), f"HTTP {status}: {text[:200]}")

    return check


def completes(agent):
    """A model proxy completes a chat, with the key of an agent."""

    def check(subject):
        key = subject.stage.secret(f"agent-{agent}-model-key", "key", subject.namespace)
        prompt = f"ping {uuid.uuid4().hex}"
        body = {"model": "small", "messages": [{"role": "user", "content": prompt}]}
        headers = {"Authorization": f"Bearer {key}"}
        status, text = subject.stage.probe(f"{subject.endpoint()}/v1/chat/completions", body, headers, seconds=20)
        expect(status == 200 and prompt in text, f"HTTP {status}: {text[:300]}")

    return check


def lists_models(subject):
    """The address of a model answers the provider's key."""
    headers = {"Authorization": f"Bearer {team.PROVIDER_KEY}"}
    status, text = subject.stage.probe(f"{subject.endpoint()}/models", headers=headers, seconds=5)
    expect(status == 200, f"HTTP {status}: {text[:200]}")


def be(what):
    """What makes the program `web` fail, in one pod."""

    def act(subject):
        (pod,) = pod_names(subject)
        try:
            subject.api.through("pods", subject.namespace, pod, 8000, f"/be/{what}", b"")
        except Refused as refused:
            # It has ended before it answered.
            if refused.code < 500:
                raise

    return act


def say(status=200, body=b"", path=CARD, hang=False):
    """What makes the program `web` answer a path in another way."""

    def act(subject):
        (pod,) = pod_names(subject)
        how = f"/be/answering?path={path}&status={status}" + ("&hang=true" if hang else "")
        subject.api.through("pods", subject.namespace, pod, 8000, how, body)

    return act


def agent(stage, namespace, name, value, does_its_job, *needs):
    """A subject that is an Agent."""
    return Subject(stage, "agents", name, namespace, does_its_job, [*needs, value])


def server(stage, namespace, name, does_its_job, *needs, **spec):
    """A subject that is an MCPServer."""
    value = meta(team.ours("MCPServer", name, **spec), namespace)
    return Subject(stage, "mcpservers", name, namespace, does_its_job, [*needs, value])


def model_api(stage, value, does_its_job, *needs):
    """A subject that is a ModelAPI."""
    name, namespace = value["metadata"]["name"], value["metadata"]["namespace"]
    return Subject(stage, "modelapis", name, namespace, does_its_job, [*needs, value])
