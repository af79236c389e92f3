"""The repository of the team that test_agents.py and test_agents_endure.py ask, and what its model says. Standard library only."""

import json

NAMESPACE = "team-a"
PROVIDER = "provider"
PROVIDER_URL = f"http://model.{PROVIDER}.svc.cluster.local:8000/v1"
# The same model, which takes everybody.
OPEN_URL = f"http://open-model.{PROVIDER}.svc.cluster.local:8000/v1"
PROVIDER_KEY = "sk-of-the-provider-3f1c7a"
CLOCK = {"registry": "PyPI", "name": "mcp-server-time", "version": "2026.10.19"}
EVERYTHING = {
    "registry": "Npm",
    "name": "@modelcontextprotocol/server-everything",
    "version": "2026.8.31",
    "program": "mcp-server-everything",
}
# What the model's own header says: a value of the same Secret.
HEADER = "of-the-team-77b0"
# Nobody outside of the pod knows the nonce, and each pod has another.
TOOLS = '''"""Tools that prove which pod has run them."""

import os
import secrets
import time

NONCE = f"{os.uname().nodename}-{secrets.token_hex(8)}"
with open("/tmp/nonce", "w") as file:
    file.write(NONCE)


def nonce() -> str:
    """Tells what only this pod knows."""
    return NONCE


def stand_still() -> str:
    """Never answers."""
    time.sleep(3600)
    return "it did answer"
'''

_ANSWER = {"tool": "nonce", "arguments": {}}
# Rules of scripted_model.py. Questions that fail come first, so that each agent can be asked them.
SCRIPT = {
    "key": PROVIDER_KEY,
    "rules": [
        {"prompt": r"^status 401$", "steps": [{"status": 401}]},
        {"prompt": r"^status 429$", "steps": [{"status": 429}]},
        {"prompt": r"^status 500$", "steps": [{"status": 500}]},
        {"prompt": r"^nothing$", "steps": [{"hang": True}]},
        {"prompt": r"^garbage$", "steps": [{"garbage": True}]},
        {"prompt": r"^much$", "steps": [{"huge": 10 << 20}]},
        {"prompt": r"^stand still$", "steps": [{"tool": "stand_still", "arguments": {}}, {"text": "told: {0}"}]},
        {
            "prompt": r"^round$",
            "system": "You are the coordinator",
            "steps": [{"tool": "delegate_to_writer", "arguments": {"message": "round"}}, {"text": "told: {0}"}],
        },
        {
            "prompt": r"^round$",
            "steps": [{"tool": "delegate_to_coordinator", "arguments": {"message": "round"}}, {"text": "told: {0}"}],
        },
        {
            "prompt": r"^ask (late)$",
            "steps": [{"tool": "delegate_to_late", "arguments": {"message": "Who?"}}, {"text": "late says: {0}"}],
        },
        {"prompt": "^How", "system": "Answer in verse", "steps": [{"text": "in verse"}]},
        {"prompt": "^How", "steps": [{"text": "in prose"}]},
        {
            "system": "You are the coordinator",
            "steps": [
                {"tool": "get_current_time", "arguments": {"timezone": "Etc/UTC"}},
                _ANSWER,
                {"tool": "delegate_to_writer", "arguments": {"message": "Who are you?"}},
                {"text": "time: {0}; tool: {1}; peer: {2}"},
            ],
        },
        {
            "system": "You are the clerk",
            "steps": [{"tool": "echo", "arguments": {"message": "{prompt}"}}, {"text": "the clerk was told: {0}"}],
        },
        {
            "system": "You are the guest",
            "steps": [
                _ANSWER,
                {"tool": "delegate_to_writer", "arguments": {"task": "Who are you?"}},
                {"text": "tool: {0}; peer: {1}"},
            ],
        },
        {"system": "You are drilled", "steps": [_ANSWER, {"text": "{prompt}, {0}"}]},
        {"system": "You are the writer", "steps": [_ANSWER, {"text": "the writer and {0}"}]},
    ],
}


# The node has two processors to promise; most pods here wait.
LITTLE = {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}}
SLOW = LITTLE | {"limits": {"cpu": "100m", "memory": "512Mi"}}


def ours(kind, name, **spec):
    """An object of Convoke. Agents and tool servers ask for little."""
    if kind != "ModelAPI" and "remote" not in spec:
        spec.setdefault("resources", LITTLE)
    return {"apiVersion": "convoke.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def agent(name, reload="Rollout", model="shared", servers=(), peers=(), **more):
    """The definition of an agent whose instructions are a file."""
    return ours(
        "Agent",
        name,
        description=f"The {name} of the team.",
        modelAPI=model,
        model="small",
        modelParameters={"timeoutSeconds": 5},
        config={"instructionsFile": f"{name}.md", "reload": reload},
        mcpServers=list(servers),
        agentNetwork={"access": list(peers)},
        env=[{"name": "AGENT_TOOL_TIMEOUT_SECONDS", "value": "4"}],
        **more,
    )


def late():
    """The files of an agent that comes after those that name it."""
    return {"late.json": json.dumps(agent("late")), "late.md": "You are late.\n"}


def guest(image):
    """The files of an agent whose image is of another make. It asks its model without a key."""
    spec = {
        "image": image,
        "modelAPI": "open",
        "model": "small",
        "config": {"instructions": "You are the guest."},
        "mcpServers": ["notes"],
        "agentNetwork": {"access": ["writer"]},
    }
    objects = [ours("ModelAPI", "open", mode="External", external={"url": OPEN_URL}), ours("Agent", "guest", **spec)]
    return {f"guest-{one['kind'].lower()}.json": json.dumps(one, indent=1) for one in objects}


def files():
    """The files of the repository, below team/."""
    key = {"secretKeyRef": {"name": "provider-key", "key": "key"}}
    header = {"name": "X-Team", "secretKeyRef": {"name": "provider-key", "key": "header"}}
    approved = {"name": "everything", "tools": ["echo"], "requireApproval": ["echo"]}
    own_key = {"name": "provider-key", "key": "key"}
    proxy = {"provider": "openai", "apiBase": PROVIDER_URL, "models": ["small"], "apiKeyFrom": key}
    objects = [
        ours("ModelAPI", "shared", mode="Proxy", proxy=proxy),
        # The same model without a proxy between: what it says reaches the agent as it is.
        ours("ModelAPI", "direct", mode="External", external={"url": PROVIDER_URL, "headersFrom": [header]}),
        ours("MCPServer", "everything", package=EVERYTHING, transport="Stdio"),
        ours("MCPServer", "clock", package=CLOCK, transport="Stdio"),
        ours("MCPServer", "notes", toolsStringFile="tools.py"),
        ours("MCPServer", "desk", toolsStringFile="tools.py"),
        agent("coordinator", servers=["clock", "notes"], peers=["writer"]),
        agent("writer", reload="Hot", servers=["desk"], peers=["coordinator"]),
        agent("critic", peers=["late"]),
        agent("plain", model="direct", providerSecretRef=own_key),
        # With a tenth of a processor, and a tool that it calls only when whoever asks it agrees.
        agent("clerk", model="direct", providerSecretRef=own_key, servers=[approved], resources=SLOW),
    ]
    made = {f"{one['kind'].lower()}-{one['metadata']['name']}.json": json.dumps(one, indent=1) for one in objects}
    made |= {f"{name}.md": f"You are the {name}.\n" for name in ("coordinator", "writer", "critic", "plain", "clerk")}
    return made | {"tools.py": TOOLS}


def in_pod(name, image, files, command, path):
    """A program of a few files as a Deployment with a Service, in the strictest pod (ConfigMap, Deployment, Service)."""
    labels = {"app": name}
    container = {
        "name": name,
        "image": image,
        "command": command,
        "volumeMounts": [{"name": "files", "mountPath": "/files"}],
        "readinessProbe": {"httpGet": {"path": path, "port": 8000}, "periodSeconds": 1, "timeoutSeconds": 10},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}},
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "files", "configMap": {"name": name}}],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    meta = {"name": name, "namespace": PROVIDER}
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {"selector": {"matchLabels": labels}, "template": template}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": files},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": deployment},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"selector": labels, "ports": [{"port": 8000}]},
        },
    ]


def card(name):
    """A card of A2A 1.0."""
    interface = {"url": "http://agent:8000", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    skill = {"id": "answer", "name": "Answer", "description": "Answers.", "tags": ["questions"]}
    return {
        "name": name,
        "description": "Answers.",
        "version": "1",
        "supportedInterfaces": [interface],
        "capabilities": {},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [skill],
    }
