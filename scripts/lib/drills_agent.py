"""Drills of Agents. Standard library only."""

import json
import time

import agents_team as team
import drills_common as common
import drills_subjects as subjects
from drills import REFUSED, TOLD, WHOLE, Drill, Lane
from drills_common import by_hand, restore, spec
from drills_subjects import CARD, be, say

NAMESPACE = "drill-agents"
DRILLED, WEB = "drilled", "light"
NOTES = "mcpserver-notes-"
OLD_CARD = "/.well-known/agent.json"
# A changed ConfigMap reaches a pod within two minutes (docs/agents.md).
HOT_SECONDS = 200


def drilled(stage):
    """An agent that uses everything: a model, a tool, a peer, a ConfigMap, and files that it reads again."""
    color = {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}}
    value = subjects.meta(
        team.ours(
            "Agent",
            DRILLED,
            description="Is drilled.",
            modelAPI={"name": "plain"},
            model="small",
            modelParameters={"timeoutSeconds": 5},
            providerSecretRef={"name": "provider-key", "key": "key"},
            config={"instructions": "You are drilled.", "reload": "Hot"},
            mcpServers=[{"name": "notes", "tools": ["nonce"]}],
            agentNetwork={"access": ["friend"]},
            env=[color, {"name": "AGENT_TOOL_TIMEOUT_SECONDS", "value": "4"}],
        ),
        NAMESPACE,
    )
    needs = [
        subjects.provider_key(NAMESPACE),
        subjects.settings(NAMESPACE),
        subjects.external(NAMESPACE, "plain"),
        notes(),
        subjects.web_agent(stage, NAMESPACE, "friend"),
    ]
    return subjects.agent(stage, NAMESPACE, DRILLED, value, subjects.answers(NOTES), *needs)


def notes():
    return subjects.meta(team.ours("MCPServer", "notes", toolsString=team.TOOLS), NAMESPACE)


def change(kind, name, patch):
    """What changes an object of the namespace."""
    return lambda subject: subject.api.merge(kind, NAMESPACE, name, patch) and None


def remove(kind, name):
    return lambda subject: subject.api.delete(kind, NAMESPACE, name)


def again(value):
    """What makes an object anew that the agent needs, as it was."""

    def act(subject):
        kind = {"ModelAPI": "modelapis", "MCPServer": "mcpservers", "Agent": "agents"}.get(value["kind"])
        now = kind and subject.api.get(kind, NAMESPACE, value["metadata"]["name"])
        if now:
            subject.api.request(
                "PUT", subject.api.path(kind, NAMESPACE, value["metadata"]["name"]), {**now, **spec_of(value)}
            )
        else:
            subject.stage.apply(value)

    return act


def spec_of(value):
    return {"spec": value["spec"]}


def configuration_deleted(subject):
    name = "agent-drilled-config"
    uid = subject.api.get("configmaps", NAMESPACE, name)["metadata"]["uid"]
    subject.api.delete("configmaps", NAMESPACE, name)
    return lambda: subject.api.get("configmaps", NAMESPACE, name)["metadata"]["uid"] != uid


def configuration_of_rollout_changed(subject):
    (name,) = [volume["configMap"]["name"] for volume in volumes(subject) if volume["name"] == "config"]
    subject.api.merge("configmaps", NAMESPACE, name, {"data": {"instructions.md": "Say nothing."}})


def volumes(subject):
    return subject.deployment()["spec"]["template"]["spec"]["volumes"]


def made_anew(subject):
    uid = common.gone(subject.stage, subject.kind, NAMESPACE, subject.name)
    subject.restore()
    return lambda: subject.get()["metadata"]["uid"] != uid


def other_settings(subject):
    replaced = common.other_pod(subject)
    subject.api.merge("configmaps", NAMESPACE, "settings", {"data": {"color": f"green-{time.time()}"}})
    return replaced


def other_instructions(subject):
    """The card tells the configuration that is loaded: that of the file, in the end."""
    before = subject.get()["status"]["card"]["configHash"]
    subject.spec({"config": {"instructions": f"You are drilled. {time.time()}"}})

    def loaded():
        config = subject.api.get("configmaps", NAMESPACE, "agent-drilled-config")["data"]["config.json"]
        said = subject.get()["status"]["card"]["configHash"]
        return said != before and said == json.loads(config)["hash"]

    return loaded


def with_secret(name):
    """What names a Secret in a variable."""
    reference = {"name": name, "key": "key"}
    return {"env": [{"name": "MORE", "valueFrom": {"secretKeyRef": reference}}]}


def unlabelled_secret(subject):
    subject.stage.apply(
        subjects.meta({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "private"}}, NAMESPACE)
    )
    # The API server's own watch brings it to the policy.
    time.sleep(3)
    subject.spec(with_secret("private"))


def other_card(subject):
    before = subject.get()["status"]["card"]["hash"]
    say(200, json.dumps(subjects.card(subject.name) | {"description": "Does other things."}).encode())(subject)
    return lambda: subject.get()["status"]["card"]["hash"] != before


def no_card(subject):
    for path in (CARD, OLD_CARD):
        say(404, path=path)(subject)


def needs_of_it(stage):
    """Drills of what the agent needs."""
    friend = subjects.web_agent(stage, NAMESPACE, "friend")
    plain = subjects.external(NAMESPACE, "plain")
    renamed = team.TOOLS.replace("def nonce(", "def number(")
    dependencies = r"DependenciesReady=False\(NotReady\)"
    no_mcp = change("mcpservers", "notes", {"spec": {"toolsString": None, "image": stage.images["web"]}})
    return [
        Drill("its ModelAPI deleted", DRILLED, remove("modelapis", "plain"), TOLD, dependencies, again(plain)),
        Drill("its tool server deleted", DRILLED, remove("mcpservers", "notes"), TOLD, dependencies, again(notes())),
        Drill(
            "its tool server scaled to 0",
            DRILLED,
            change("mcpservers", "notes", {"spec": {"replicas": 0}}),
            TOLD,
            dependencies,
            change("mcpservers", "notes", {"spec": {"replicas": 1}}),
        ),
        Drill(
            "Service of its tool server taken",
            DRILLED,
            notes_taken,
            TOLD,
            dependencies,
            remove("services", "mcpserver-notes"),
        ),
        Drill(
            "its tool renamed by its server",
            DRILLED,
            change("mcpservers", "notes", {"spec": {"toolsString": renamed}}),
            TOLD,
            r"ToolsAvailable=False\(MissingTools\)",
            again(notes()),
        ),
        Drill(
            "its tool server is none any more",
            DRILLED,
            no_mcp,
            TOLD,
            r"ToolsAvailable=False\(NotListed\)",
            again(notes()),
        ),
        Drill(
            "its peer deleted",
            DRILLED,
            remove("agents", "friend"),
            TOLD,
            r"PeersResolved=False\(PeersMissing\)",
            again(friend),
        ),
        Drill(
            "address of its model leads nowhere",
            DRILLED,
            change(
                "modelapis",
                "plain",
                # An address of Services that none has.
                {"spec": {"external": {"url": "http://10.96.255.254:8000/v1"}}},
            ),
            TOLD,
            r"ModelReachable=False\(Unreachable\)",
            again(plain),
        ),
        Drill(
            "ConfigMap that it reads deleted",
            DRILLED,
            remove("configmaps", "settings"),
            TOLD,
            r"InputsFollowed=False\(Missing\)",
            again(subjects.settings(NAMESPACE)),
        ),
        Drill(
            "ConfigMap that it reads without its label",
            DRILLED,
            change("configmaps", "settings", {"metadata": {"labels": {"convoke.dev/agents": None}}}),
            TOLD,
            r"InputsFollowed=False\(NotAllowed\)",
            again(subjects.settings(NAMESPACE)),
        ),
        Drill("ConfigMap that it reads changed", DRILLED, other_settings, WHOLE),
    ]


def notes_taken(subject):
    subject.api.patch(
        "services",
        NAMESPACE,
        "mcpserver-notes",
        {"op": "remove", "path": "/metadata/ownerReferences"},
        {"op": "replace", "path": "/spec/selector", "value": common.NOBODY},
    )


def of_itself(stage):
    """Drills of its own objects and its spec."""
    no_memory = {"requests": {"memory": "8Mi"}, "limits": {"memory": "24Mi"}}
    content = lambda value: value["data"]["instructions.md"]
    by_a_person = by_hand(
        "configmaps", lambda _: {"data": {"instructions.md": "Say nothing."}}, content, "agent-drilled-config"
    )
    no_start = r"Ready=False\((OOMKilled|CrashLoopBackOff|RunContainerError)\)"
    no_secret = r"Ready=False\((CreateContainerConfigError|WaitingForInputs)\)"
    return [
        Drill("container ended", DRILLED, common.container_ended, WHOLE),
        Drill("its configuration changed by hand", DRILLED, by_a_person, WHOLE),
        Drill("its configuration deleted", DRILLED, configuration_deleted, WHOLE),
        Drill("configuration of a rollout changed by hand", "friend", configuration_of_rollout_changed, REFUSED),
        Drill("new instructions, which pods read again", DRILLED, other_instructions, WHOLE, "", restore, HOT_SECONDS),
        Drill("invalid name of an image", DRILLED, spec(image="No Image"), REFUSED),
        Drill(
            "image that ends at once",
            DRILLED,
            spec(image=stage.images["convoke"]),
            TOLD,
            r"Ready=False\(CrashLoopBackOff\)",
            restore,
        ),
        Drill("too little memory", DRILLED, spec(resources=no_memory), TOLD, no_start, restore),
        Drill("suspended", DRILLED, spec(suspend=True), TOLD, r"Ready=False\(Suspended\)", spec(suspend=False)),
        Drill("Secret that does not exist", DRILLED, spec(**with_secret("nothing")), TOLD, no_secret, restore),
        Drill("Secret that is not labelled", DRILLED, unlabelled_secret, REFUSED, "", restore),
        Drill("made anew", DRILLED, made_anew, WHOLE),
    ]


def of_web(stage):
    """Drills that need a program which fails when it is told to, and cards."""
    probe = r"Ready=False\(ProbeFailing\)"
    turns = {
        "its card is gone": (no_card, r"CardRead=False\(NoCard\)"),
        "its card is none": (say(200, b"<html>"), r"CardRead=False\(Invalid\)"),
        "its card has no name": (say(200, b'{"url": "http://a"}'), r"CardRead=False\(Invalid\).* name"),
        "its card has 2 MiB": (say(200, b" " * (2 << 20) + b"{}"), r"CardRead=False\(TooLarge\)"),
        "its endpoint answers 500": (say(500), r"CardRead=False\(Unreachable\)"),
        "its endpoint never answers": (say(hang=True), r"CardRead=False\(Unreachable\)"),
    }
    made = [
        Drill("not ready any more", WEB, be("unready"), TOLD, probe, be("ready")),
        Drill("not alive any more", WEB, common.restarted(be("sick")), WHOLE),
        Drill("ends with exit code 3", WEB, common.restarted(be("gone?code=3")), WHOLE),
        Drill("takes more memory than it has", WEB, common.restarted(be("hungry?mib=200")), WHOLE),
    ]
    for number, (what, (act, says)) in enumerate(turns.items()):
        made.append(Drill(what, f"card-{number}", act, TOLD, says, common.delete_pods, 180, turn=1))
    made.append(Drill("its card is another", "card-other", other_card, WHOLE, "", common.delete_pods, 180, turn=1))
    return made


def lane(stage):
    """All drills of Agents."""
    stage.namespace(NAMESPACE)
    needs = [subjects.provider_key(NAMESPACE), subjects.external(NAMESPACE, "plain")]
    made = [*common.of_children(DRILLED), *of_itself(stage), *needs_of_it(stage), *of_web(stage)]
    all_of_them = {DRILLED: drilled(stage)}
    for name in dict.fromkeys(drill.subject for drill in made):
        if name != DRILLED:
            value = subjects.web_agent(stage, NAMESPACE, name)
            all_of_them[name] = subjects.agent(stage, NAMESPACE, name, value, subjects.shows_card, *needs)
    return Lane(all_of_them, made)
