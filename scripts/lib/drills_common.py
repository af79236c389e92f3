"""What is broken in the same way for Agents, MCPServers and ModelAPIs: pods, Deployments, Services, images, quotas."""

import json

from agents_stage import condition
from drills import TOLD, WHOLE, Drill
from kube_api import Refused

NOBODY = {"convoke.dev/name": "nobody"}
MISSING = "registry.convoke-system.svc:5000/nothing:missing"
QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}


def other_pod(subject):
    """Tells when none of the pods of now are left, and others are ready."""
    before = {pod["metadata"]["uid"] for pod in subject.pods()}

    def are_others():
        now = subject.pods()
        return now and all(pod["metadata"]["uid"] not in before and condition(pod, "Ready")[0] == "True" for pod in now)

    return are_others


def delete_pods(subject):
    for pod in subject.pods():
        subject.api.delete("pods", subject.namespace, pod["metadata"]["name"], now=True)


def pod_deleted(subject):
    undone = other_pod(subject)
    delete_pods(subject)
    return undone


def gone(stage, kind, namespace, name):
    """Deletes an object, waits until it is gone or another one has its name, and gives its UID."""
    uid = stage.api.get(kind, namespace, name)["metadata"]["uid"]
    stage.api.delete(kind, namespace, name)

    def is_gone():
        now = stage.api.get(kind, namespace, name)
        return now is None or now["metadata"]["uid"] != uid

    stage.eventually(f"{kind} {name} is gone", is_gone, seconds=60)
    return uid


def right_taken(subject):
    subject.api.delete("rolebindings", subject.namespace, "convoke-keys")


def right_given(subject):
    subject.stage.give_keys(subject.namespace)


def restarts(subject):
    """Tells when the container was started again."""

    def count():
        return sum(one["restartCount"] for pod in subject.pods() for one in pod["status"]["containerStatuses"])

    before = count()
    return lambda: count() > before


def restarted(act):
    """What ends a container, so that it is started again."""

    def both(subject):
        started = restarts(subject)
        act(subject)
        return started

    return both


def in_container(code):
    """What runs Python in the container."""

    def act(subject):
        (pod,) = subject.pods()
        name = pod["metadata"]["name"]
        subject.stage.kubectl("exec", "-n", subject.namespace, name, "--", "python", "-c", code)

    return act


def container_ended(subject):
    undone = restarts(subject)
    try:
        in_container("import os, signal; os.kill(1, signal.SIGTERM)")(subject)
    except AssertionError as error:
        # The end of the container may end the command, too.
        if "137" not in str(error) and "143" not in str(error) and "closed" not in str(error):
            raise
    return undone


def is_another(subject, kind):
    """Tells when another object has the name of the child."""
    uid = subject.api.get(kind, subject.namespace, subject.child)["metadata"]["uid"]

    def look():
        now = subject.api.get(kind, subject.namespace, subject.child)
        return now is not None and now["metadata"]["uid"] != uid

    return look


def deployment_deleted(subject):
    undone = is_another(subject, "deployments")
    subject.api.delete("deployments", subject.namespace, subject.child)
    return undone


def service_deleted(subject):
    undone = is_another(subject, "services")
    subject.api.delete("services", subject.namespace, subject.child)
    return undone


def by_hand(kind, patch, read, name=None):
    """What changes a child by a merge patch. `read` gives what was changed, of the child."""

    def act(subject):
        child = name or subject.child
        get = lambda: subject.api.get(kind, subject.namespace, child)
        before = read(get())
        changed = subject.api.merge(kind, subject.namespace, child, patch(subject))
        assert read(changed) != before, "nothing was changed"
        return lambda: read(get()) == before

    return act


def containers(subject, **changes):
    """A patch of the container; lists are replaced whole."""
    container = {**subject.container(), **changes}
    return {"spec": {"template": {"spec": {"containers": [container]}}}}


def service_taken(subject):
    """The Service is nobody's any more, and leads to nobody."""
    subject.api.patch(
        "services",
        subject.namespace,
        subject.child,
        {"op": "remove", "path": "/metadata/ownerReferences"},
        {"op": "replace", "path": "/spec/selector", "value": NOBODY},
    )


def service_given_back(subject):
    subject.api.delete("services", subject.namespace, subject.child)


def quota(subject):
    """No pod more. The API server holds to a quota only a moment after it was made."""
    api, namespace = subject.api, subject.namespace
    api.create("resourcequotas", namespace, QUOTA)
    another = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "another"}, "spec": subject.pods()[0]["spec"]}

    def is_refused():
        try:
            api.create("pods", namespace, another, dry_run=True)
        except Refused as refused:
            return "exceeded quota" in refused.text
        return False

    subject.stage.eventually("the quota holds", is_refused, seconds=60)
    delete_pods(subject)


def no_quota(subject):
    subject.api.delete("resourcequotas", subject.namespace, "none")


def spec(**patch):
    """What changes the spec."""
    return lambda subject: subject.spec(patch)


def restore(subject):
    subject.restore()


def main(deployment):
    """The container of a Deployment."""
    return deployment["spec"]["template"]["spec"]["containers"][0]


def provider_noticed(subject, name):
    """Waits until the pods of a model proxy say that their provider is of no use: they keep what they know for a while."""
    pods = [pod["metadata"]["name"] for pod in subject.stage.pods("modelapi", name, subject.namespace)]
    for pod in pods:
        said = lambda pod=pod: json.loads(subject.api.through("pods", subject.namespace, pod, 9000, "/provider"))
        subject.stage.eventually(f"{pod} notices", lambda said=said: said()["reachable"] is False, seconds=60)


def of_children(subject, **beside_image):
    """Drills of a subject that has pods and a Service. `beside_image` is changed in its spec when `image` is."""
    image = lambda deployment: main(deployment)["image"]
    names = lambda deployment: sorted(one["name"] for one in main(deployment).get("env", []))
    replicas = lambda deployment: deployment["spec"]["replicas"]
    paused = lambda deployment: bool(deployment["spec"].get("paused"))
    selector = lambda service: service["spec"]["selector"]
    ports = lambda service: [port["targetPort"] for port in service["spec"]["ports"]]
    # What is added stays: only what is wanted is brought back.
    fewer = lambda subject: subject.container()["env"][:-1]
    patches = {
        "Deployment scaled to 0 by hand": ("deployments", lambda s: {"spec": {"replicas": 0}}, replicas),
        "Deployment's image changed by hand": ("deployments", lambda s: containers(s, image=MISSING), image),
        "Deployment paused by hand": ("deployments", lambda s: {"spec": {"paused": True}}, paused),
        "variable of the Deployment removed by hand": ("deployments", lambda s: containers(s, env=fewer(s)), names),
        "Service's selector changed by hand": ("services", lambda s: {"spec": {"selector": NOBODY}}, selector),
        "Service's ports changed by hand": ("services", lambda s: {"spec": {"ports": other_ports(s)}}, ports),
    }
    return [
        Drill("pod deleted", subject, pod_deleted, WHOLE),
        Drill("Deployment deleted", subject, deployment_deleted, WHOLE),
        Drill("Service deleted", subject, service_deleted, WHOLE),
        *(Drill(what, subject, by_hand(*how), WHOLE) for what, how in patches.items()),
        Drill(
            "Service taken by somebody else",
            subject,
            service_taken,
            TOLD,
            r"Ready=False\(Conflict\)",
            service_given_back,
        ),
        Drill(
            "image that does not exist",
            subject,
            spec(image=MISSING, **beside_image),
            TOLD,
            r"Ready=False\(ImagePullBackOff\)",
            restore,
        ),
        Drill("scaled to 0", subject, spec(replicas=0), TOLD, r"Ready=False\(Stopped\)", spec(replicas=1)),
        Drill("pod deleted under a quota of none", subject, quota, TOLD, r"Ready=False\(QuotaExceeded\)", no_quota),
    ]


def other_ports(subject):
    """The ports of the Service, which lead to where nobody listens."""
    return [{**port, "targetPort": 9} for port in subject.service()["spec"]["ports"]]
