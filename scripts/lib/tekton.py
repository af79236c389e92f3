#!/usr/bin/env python3
"""Installs Tekton Pipelines in the running cluster with a node: as its release does, from images that are made here.

    tekton.py --tools DIR --state DIR       scripts/cluster up --node --tekton runs it

DIR of `--tools` is what `scripts/cluster tools --tekton` prints: Tekton's programs, and its manifests as JSON. That of
`--state` is the cluster's state folder. Images are those that a release names, FROM scratch: `/ko-app/NAME`, and busybox
where a step has a script. Run again, it changes nothing that is as it should be.

It returns once a PipelineRun would run: the webhook refuses what is wrong, fills in defaults and converts versions, and
the controller leads. Standard library only, Python 3.11 or newer, Linux.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import oci
from kube_api import Api, Refused
from node_files import REGISTRY_NAME, REGISTRY_PORT
from operator_image import shell

NAMESPACE = "tekton-pipelines"
PROGRAMS = ("controller", "webhook", "entrypoint", "nop", "sidecarlogresults", "workingdirinit")
# Where manifests name an image: of a program, and of a shell for scripts.
PROGRAM_IMAGE = "ko://"
SHELL_IMAGE = "cgr.dev/chainguard/busybox@"
# As the images of a release have it. With set-security-context, nothing of Tekton may be root's.
USER = "65532:65532"
SECONDS = 120
LEASE_SECONDS = 15
PAUSE = 0.1
RUNS = "namespaces/default/pipelineruns?dryRun=All"
# What the webhook lets pass, in both versions, and what it alone refuses: without an image.
GOOD_RUN = {"steps": [{"name": "s", "image": "i", "command": ["true"]}]}
BAD_RUN = {"steps": [{"name": "s", "command": ["true"]}]}
DENIED = 'admission webhook "validation.webhook.pipeline.tekton.dev" denied the request'
# What the API server says while nobody answers for a webhook.
WEBHOOK_FAILS = "failed calling webhook"
# How much of a time says the second.
SECOND = len("2026-11-28T14:00:00")
# A minute, by default.
LEASES = {"lease-duration": f"{LEASE_SECONDS}s", "renew-deadline": "10s", "retry-period": "5s"}
# Of each of these the controller has a lease, in its name.
LEADS = ("pipelinerun", "taskrun")


class Failed(Exception):
    """Tekton cannot be installed; the text says why."""


def image(name, tools, user=USER):
    """The image of a program, or of the shell."""
    if name != "shell":
        files = {f"ko-app/{name}": tools / name}
        return oci.Image(files, entrypoint=[f"/ko-app/{name}"], config={"User": user})
    files, links = shell()
    return oci.Image(files, links, entrypoint=["/bin/sh"], config={"User": user})


def push_images(tools, registry):
    """Pushes all images; gives their names as the node knows them, with digests."""
    name = ".".join((*REGISTRY_NAME, "svc"))
    images = {}
    for program in (*PROGRAMS, "shell"):
        digest = image(program, tools).push(registry, f"tekton/{program}", "local")
        images[program] = f"{name}:{REGISTRY_PORT}/tekton/{program}@{digest}"
    return images


def local(value, images):
    """A manifest, or a part of it, in which images of a release are ours."""
    if isinstance(value, dict):
        return {key: local(part, images) for key, part in value.items()}
    if isinstance(value, list):
        return [local(part, images) for part in value]
    if isinstance(value, str) and value.startswith(PROGRAM_IMAGE):
        return images[value.rpartition("/")[2]]
    if isinstance(value, str) and value.startswith(SHELL_IMAGE):
        return images["shell"]
    return value


def impatient(thing):
    """A manifest by which pods are seen to be ready at once, and what a killed one has leased is free soon."""
    name = thing["metadata"]["name"]
    if thing["kind"] == "Deployment":
        for container in thing["spec"]["template"]["spec"]["containers"]:
            if "readinessProbe" in container:
                container["readinessProbe"] |= {"initialDelaySeconds": 0, "periodSeconds": 1}
    elif thing["kind"] == "ConfigMap" and name.startswith("config-leader-election-"):
        thing["data"] |= LEASES
    return thing


def place(thing):
    """The path of an object."""
    version, kind = thing["apiVersion"], thing["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = thing["metadata"].get("namespace")
    folder = f"{root}/namespaces/{namespace}" if namespace else root
    kind = kind.lower() + ("es" if kind.endswith("s") else "s")
    return f"{folder}/{kind}/{thing['metadata']['name']}"


class Installation:
    """Tekton in one cluster."""

    def __init__(self, api, seconds=SECONDS):
        self.api = api
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds

    def get(self, path):
        return json.loads(self.api.request("GET", path))

    def wait(self, what, probe):
        """Waits until the probe gives nothing: it gives what is missing. Raises Failed with the last of it."""
        while True:
            try:
                missing = probe()
            except (Refused, OSError) as error:
                missing = str(error)
            if not missing:
                return
            if time.monotonic() > self.deadline:
                raise Failed(f"{what}: not in {self.seconds} s: {missing}{self.pods()}")
            time.sleep(PAUSE)

    def pods(self):
        """What the pods of Tekton wait for, a line each."""
        try:
            pods = self.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        except (Refused, OSError):
            return ""
        lines = [
            f"\n{pod['metadata']['name']}: {pod['status'].get('phase')} {json.dumps(container['state'])}"
            for pod in pods
            for container in pod["status"].get("containerStatuses") or [{"state": pod["status"].get("conditions")}]
        ]
        return "".join(lines)

    def apply(self, thing):
        """Server-side apply; again while the API server or a webhook is not able to answer."""
        path, body = f"{place(thing)}?fieldManager=convoke&force=true", json.dumps(thing).encode()

        def probe():
            try:
                self.api.request("PATCH", path, body, "application/apply-patch+yaml")
            except Refused as refused:
                if refused.code < 500 or refused.code == 500 and WEBHOOK_FAILS not in refused.text:
                    raise Failed(f"the API server refuses {path}: {refused}") from refused
                return str(refused)
            return None

        self.wait(f"apply {path}", probe)

    def try_run(self, version, task):
        """What the API server makes of a PipelineRun, which it does not keep."""
        tasks = [{"name": "t", "taskSpec": task}]
        kind = {"apiVersion": f"tekton.dev/{version}", "kind": "PipelineRun"}
        run = kind | {"metadata": {"name": "convoke-is-tekton-ready"}, "spec": {"pipelineSpec": {"tasks": tasks}}}
        return json.loads(self.api.request("POST", f"/apis/tekton.dev/{version}/{RUNS}", run))

    def pods_are_missing(self):
        """Which Deployment is not there yet, as it was applied."""
        for deployment in self.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments")["items"]:
            status, name = deployment.get("status", {}), deployment["metadata"]["name"]
            counts = [status.get(count, 0) for count in ("replicas", "updatedReplicas", "availableReplicas")]
            if status.get("observedGeneration") != deployment["metadata"]["generation"]:
                return f"{name} was not looked at"
            if set(counts) != {deployment["spec"]["replicas"]}:
                return f"{name}: {counts[0]} pods, {counts[1]} new, {counts[2]} available"
        return None

    def webhook_is_missing(self):
        """What the webhook does not do yet."""
        for crd in self.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]:
            conversion = crd["spec"].get("conversion", {}).get("webhook")
            if conversion and "caBundle" not in conversion["clientConfig"]:
                return f"nobody converts {crd['metadata']['name']}"
        try:
            self.try_run("v1", BAD_RUN)
            return "a PipelineRun without an image was taken"
        except Refused as refused:
            # It is JSON, with quotes of its own.
            if DENIED not in refused.text.replace('\\"', '"'):
                return str(refused)
        # Older versions are converted.
        for version in ("v1", "v1beta1"):
            spec = self.try_run(version, GOOD_RUN)["spec"]
            if "pipeline" not in spec.get("timeouts", {}) and "timeout" not in spec:
                return f"a PipelineRun ({version}) has no defaults"
        return None

    def leader_is_missing(self):
        """Who does not lead yet."""
        pods = self.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        started = {
            pod["metadata"]["name"]: status["state"]["running"]["startedAt"]
            for pod in pods
            for status in pod["status"].get("containerStatuses", [])
            if status["ready"]
        }
        leases = self.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases")["items"]
        for kind in LEADS:
            name = f"tekton-pipelines-controller.github.com.tektoncd.pipeline.pkg.reconciler.{kind}."
            specs = [lease["spec"] for lease in leases if lease["metadata"]["name"].startswith(name)]
            for spec in specs:
                # The pod, and a number of its own.
                holder = spec.get("holderIdentity", "").rpartition("_")[0]
                # One that was killed may still hold it.
                if not spec.get("renewTime", "")[:SECOND] >= started.get(holder, "nobody")[:SECOND]:
                    return f"the lease of {kind} is held by {holder or 'nobody'}, which does not run"
            if not specs:
                return f"there is no lease of {kind}"
        return None

    def install(self, tools, registry):
        """Applies everything and waits until it works."""
        images = push_images(tools, registry)
        for crd in json.loads((tools / "crds.json").read_text()):
            self.apply(crd)
        for thing in json.loads((tools / "install.json").read_text()):
            self.apply(impatient(local(thing, images)))
        self.wait("Tekton's pods", self.pods_are_missing)
        self.wait("Tekton's webhook", self.webhook_is_missing)
        self.wait("Tekton's controller", self.leader_is_missing)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", required=True, type=Path, help="folder of Tekton's programs and manifests")
    parser.add_argument("--state", required=True, type=Path, help="the state folder of the cluster")
    options = parser.parse_args()
    try:
        registry = json.loads((options.state / "ready").read_text())["registry"]
        api = Api(json.loads((options.state / "kubeconfig").read_text()))
        Installation(api).install(options.tools, registry)
    except (Failed, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
