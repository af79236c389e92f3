"""Drills of ModelAPIs. Standard library only."""

import agents_team as team
import drills_common as common
import drills_subjects as subjects
from drills import GOES_ON, REFUSED, TOLD, WHOLE, Drill, Lane
from drills_common import by_hand, restore, spec
from drills_subjects import be

NAMESPACE = "drill-modelapis"
REAL, WEB, EXTERNAL, CALLER = "real", "light", "outside", "caller"
# The model pod of these drills.
FICKLE = "fickle"


def tell(**changes):
    """What makes the provider another one."""

    def act(subject):
        script = team.SCRIPT | changes
        subject.api.through("services", team.PROVIDER, FICKLE, 8000, "/script", script, method="PUT")

    return act


def provider(replicas):
    """What takes the provider away, or brings it back."""
    return lambda subject: subject.stage.scale(FICKLE, replicas)


def key(text):
    """What makes the provider's key another one, for new pods."""

    def act(subject):
        subject.stage.apply(subjects.secret(NAMESPACE, "provider-key", key=text))
        common.delete_pods(subject)

    return act


def configuration(subject):
    """The ConfigMap with LiteLLM's configuration."""
    volumes = subject.deployment()["spec"]["template"]["spec"]["volumes"]
    return next(volume["configMap"]["name"] for volume in volumes if volume["name"] == "config")


def deleted(kind, name_of):
    """What deletes a child that is made anew."""

    def act(subject):
        name = name_of(subject)
        uid = subject.api.get(kind, NAMESPACE, name)["metadata"]["uid"]
        subject.api.delete(kind, NAMESPACE, name)
        return lambda: subject.api.get(kind, NAMESPACE, name)["metadata"]["uid"] != uid

    return act


def light(stage):
    """A proxy that is the program `web`: what is broken around it needs no LiteLLM."""
    value = subjects.meta(team.ours("ModelAPI", WEB, mode="Proxy", proxy={"models": ["small"]}), NAMESPACE)
    value["spec"] |= {
        "image": stage.images["web"],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
    }
    return subjects.model_api(stage, value, subjects.is_web("/v1/models"))


def real(stage):
    """A proxy in front of a provider that can be told to fail, and an agent that has a key for it."""
    pod, url = subjects.model_pod(stage, FICKLE)
    needs = [*pod, subjects.provider_key(NAMESPACE), subjects.web_agent(stage, NAMESPACE, CALLER, REAL)]
    return subjects.model_api(stage, subjects.proxy(NAMESPACE, REAL, url), subjects.completes(CALLER), *needs)


def of_web():
    """Drills of what is around a proxy."""
    agents = lambda value: value["data"]["agents.json"]
    emptied = by_hand("configmaps", lambda _: {"data": {"agents.json": "{}"}}, agents, f"modelapi-{WEB}-agents")
    secret = {"proxy": {"apiKeyFrom": {"secretKeyRef": {"name": "nothing", "key": "key"}}}}
    no_secret = r"Ready=False\((CreateContainerConfigError|WaitingForInputs)\)"
    return [
        Drill(
            "not ready any more", WEB, unready, TOLD, r"Ready=False\((ProbeFailing|RollingOut)\)", common.delete_pods
        ),
        Drill("ends with exit code 3", WEB, common.restarted(be("gone?code=3")), WHOLE),
        Drill("takes more memory than it has", WEB, common.restarted(be("hungry?mib=200")), WHOLE),
        Drill("its configuration deleted", WEB, deleted("configmaps", configuration), WHOLE),
        Drill("its list of agents emptied by hand", WEB, emptied, WHOLE),
        Drill("its list of agents deleted", WEB, deleted("configmaps", lambda s: f"{s.child}-agents"), WHOLE),
        Drill("invalid name of an image", WEB, spec(image="No Image"), REFUSED),
        Drill("Secret of its key does not exist", WEB, spec(**secret), TOLD, no_secret, restore),
    ]


def noticed(act):
    """What does this to the provider, and waits until the proxy has noticed."""

    def both(subject):
        act(subject)
        common.provider_noticed(subject, REAL)

    return both


def unready(subject):
    subjects.say(503, path="/health/readiness")(subject)


def questions_fail(subject):
    """The provider fails all questions, and an agent asks it some."""
    tell(rules=[{"steps": [{"status": 500}]}])(subject)
    for _ in range(4):
        subject.works()


def of_providers():
    """Drills of providers and addresses."""
    no_answer, refused = r"Reachable=False\(Unreachable\)", r"Reachable=False\(KeyRefused\)"
    broken = r"Reachable=False\(ServerError\)"
    # An address of Services that none has.
    nowhere = {"url": "http://10.96.255.254:8000/v1"}
    nameless = {"url": "http://nobody.provider.svc.cluster.local:8000/v1"}
    not_allowed = r"Reachable=Unknown\(NotAllowed\)"
    well = tell()
    return [
        Drill("pod of LiteLLM deleted", REAL, common.pod_deleted, WHOLE, seconds=180),
        Drill(
            "wrong key of its provider, and pod deleted",
            REAL,
            key("sk-wrong"),
            TOLD,
            refused,
            key(team.PROVIDER_KEY),
            180,
        ),
        Drill("right to write keys taken away", REAL, common.right_taken, GOES_ON, "", common.right_given),
        Drill(
            "its ModelAPI does not serve its model",
            CALLER,
            spec(model="other"),
            TOLD,
            r"ModelServed=False\(UnknownModel\)",
            restore,
        ),
        Drill("address that does not answer", EXTERNAL, spec(external=nowhere), TOLD, no_answer, restore),
        Drill("name that has no address", EXTERNAL, spec(external=nameless), TOLD, not_allowed, restore),
        Drill(
            "address that is not allowed",
            EXTERNAL,
            spec(external={"url": "http://10.1.2.3/v1"}),
            TOLD,
            not_allowed,
            restore,
        ),
        Drill("provider that takes no key any more", REAL, noticed(tell(models=401)), TOLD, refused, well, 180, turn=1),
        Drill("provider that answers 500", REAL, noticed(tell(models=500)), TOLD, broken, well, 180, turn=2),
        Drill("address that answers 500", EXTERNAL, tell(models=500), TOLD, broken, well, 180, turn=3),
        Drill("provider that is gone", REAL, noticed(provider(0)), TOLD, no_answer, provider(1), 180, turn=4),
        Drill(
            "provider that lists models and answers questions with 500",
            REAL,
            questions_fail,
            TOLD,
            r"Reachable=False\(QuestionsFail\)",
            well,
            180,
            turn=6,
        ),
        Drill("address that is gone", EXTERNAL, provider(0), TOLD, no_answer, provider(1), 180, turn=5),
    ]


def lane(stage):
    """All drills of ModelAPIs."""
    stage.namespace(NAMESPACE)
    stage.give_keys(NAMESPACE)
    pod, url = subjects.model_pod(stage, FICKLE)
    proxied = real(stage)
    caller = subjects.web_agent(stage, NAMESPACE, CALLER, REAL)
    needs = [one for one in proxied.objects if one["metadata"]["name"] != CALLER]
    outside = subjects.external(NAMESPACE, EXTERNAL, url)
    found = {
        WEB: light(stage),
        REAL: proxied,
        EXTERNAL: subjects.model_api(stage, outside, subjects.lists_models, *pod),
        CALLER: subjects.agent(stage, NAMESPACE, CALLER, caller, subjects.shows_card, *needs),
    }
    return Lane(found, [*common.of_children(WEB), *of_web(), *of_providers()])
