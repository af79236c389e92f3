"""Drills of the keys of an agent and of its model proxy. They take longest. Standard library only."""

import base64

import agents_team as team
import drills_common as common
import drills_subjects as subjects
from drills import GOES_ON, TOLD, WHOLE, Drill, Lane

NAMESPACE = "drill-keys"
KEYED, PROXIED = "keyed", "proxied"
SOURCE = "source"
AGENT_SECRET, PROXY_SECRET = f"agent-{KEYED}-model-key", f"modelapi-{PROXIED}-keys"
# What somebody changes in the keys of a proxy is written again within eleven minutes (docs/SHORTCOMINGS.md), and a kubelet needs one
# more to bring it.
KEY_SECONDS = 900


def secret_deleted(subject):
    subject.api.delete("secrets", NAMESPACE, AGENT_SECRET)


def secret_and_pod_deleted(subject):
    undone = common.other_pod(subject)
    secret_deleted(subject)
    common.delete_pods(subject)
    return undone


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def changed(name, key, text):
    """What changes a key by hand. It is undone when it is the old one."""

    def act(subject):
        before = subject.stage.secret(name, key, NAMESPACE)
        subject.api.merge("secrets", NAMESPACE, name, {"data": {key: encoded(text)}})
        return lambda: subject.stage.secret(name, key, NAMESPACE) == before

    return act


def agent_key_changed(subject):
    """Changes its key by hand before its next pod reads it. It is undone when it is another one, and the pods are others, too."""
    before, wrong = subject.stage.secret(AGENT_SECRET, "key", NAMESPACE), "sk-cvk-nobody"
    changed(AGENT_SECRET, "key", wrong)(subject)
    undone = common.other_pod(subject)
    common.delete_pods(subject)
    return lambda: undone() and subject.stage.secret(AGENT_SECRET, "key", NAMESPACE) not in (before, wrong)


def model_gone(subject):
    subject.stage.scale(SOURCE, 0)
    common.provider_noticed(subject, PROXIED)


def model_back(subject):
    subject.stage.scale(SOURCE, 1)


def of_proxy(patch):
    return lambda subject: subject.api.merge("modelapis", NAMESPACE, PROXIED, {"spec": patch}) and None


def proxy_anew(url):
    """What makes the ModelAPI of the agent anew."""

    def act(subject):
        key = subject.stage.secret(AGENT_SECRET, "key", NAMESPACE)
        common.gone(subject.stage, "modelapis", NAMESPACE, PROXIED)
        subject.stage.apply(subjects.proxy(NAMESPACE, PROXIED, url))
        return lambda: subject.stage.secret(AGENT_SECRET, "key", NAMESPACE) not in (None, key)

    return act


def agent_anew(subject):
    key = subject.stage.secret(AGENT_SECRET, "key", NAMESPACE)
    common.gone(subject.stage, "agents", NAMESPACE, KEYED)
    subject.restore()
    return lambda: subject.stage.secret(AGENT_SECRET, "key", NAMESPACE) not in (None, key)


def lane(stage):
    """All drills of keys."""
    stage.namespace(NAMESPACE)
    stage.give_keys(NAMESPACE)
    pod, url = subjects.model_pod(stage, SOURCE)
    proxy = subjects.proxy(NAMESPACE, PROXIED, url)
    instructions = {"instructions": "You are keyed."}
    how = {"modelAPI": {"name": PROXIED}, "model": "small", "config": instructions, "modelParameters": {"timeoutSeconds": 10}}
    keyed = subjects.meta(team.ours("Agent", KEYED, **how), NAMESPACE)
    needs = [*pod, subjects.provider_key(NAMESPACE)]
    found = {
        KEYED: subjects.agent(stage, NAMESPACE, KEYED, keyed, subjects.answers(), *needs, proxy),
        PROXIED: subjects.model_api(stage, proxy, subjects.completes(KEYED), *needs, keyed),
    }
    not_ready = r"DependenciesReady=False\(NotReady\)"
    signing_key = changed(PROXY_SECRET, "signing-key", "x" * 64)
    made = [
        Drill("Secret of its key deleted", KEYED, secret_deleted, GOES_ON),
        Drill("right to write keys taken away", KEYED, common.right_taken, GOES_ON, "", common.right_given),
        Drill(
            "its model proxy scaled to 0", KEYED, of_proxy({"replicas": 0}), TOLD, not_ready, of_proxy({"replicas": 1})
        ),
        Drill(
            "provider of its model proxy gone",
            KEYED,
            model_gone,
            TOLD,
            r"ModelReachable=False\(Unreachable\)",
            model_back,
            180,
            turn=6,
        ),
        Drill("its model proxy made anew", KEYED, proxy_anew(url), WHOLE, seconds=300),
        Drill("made anew, with a key", KEYED, agent_anew, WHOLE, seconds=180),
        Drill("Secret of its key and pod deleted", KEYED, secret_and_pod_deleted, WHOLE, seconds=KEY_SECONDS),
        Drill("its key changed by hand, and pod deleted", KEYED, agent_key_changed, WHOLE, seconds=180),
        Drill("signing key of the proxy changed by hand", PROXIED, signing_key, WHOLE, seconds=KEY_SECONDS),
    ]
    return Lane(found, made)
