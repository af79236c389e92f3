"""`spec.layerCache` of an AgentBuild: what did not change is not run again.

test_builds.py runs this test in its cluster. It needs nothing of its other tests. Standard library only.
"""

import contextlib
import http.client
import json
import unittest

import oci
from agents_stage import condition
from builds_stage import NAMESPACE, stage
from test_tekton import REGISTRY

FOLDER = "../images/layered"
IMAGE = f"{NAMESPACE}/layered"
# What takes its time, and says by its result when it ran. Then what a commit changes.
DOCKERFILE = """ARG BASE
FROM ${BASE}
USER 0
RUN sleep 10; head -c 16 /dev/urandom | od > /stamp
COPY note /note
"""


class LayersOfABuild(unittest.TestCase):
    """One AgentBuild with a cache of layers: built, built again from another file, and rebuilt."""

    def files(self, note):
        build = {
            "source": {"gitSync": {}, "subfolder": "images/layered"},
            "output": {"image": IMAGE, "insecure": True},
            "buildArgs": {"BASE": f"{REGISTRY}/tekton/shell:local"},
            "layerCache": True,
            "pipeline": {"parameters": [{"name": "buildah-image", "value": stage.in_cluster("builder")}]},
        }
        head = {"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "metadata": {"name": "layered"}}
        files = {"layered.json": json.dumps(head | {"spec": build})}
        return files | {f"{FOLDER}/Dockerfile": DOCKERFILE, f"{FOLDER}/note": f"{note}\n"}

    def built(self, after=None):
        """Waits for an image of another run than this one; gives the status, and what the steps have said."""

        def look():
            build = stage.get("agentbuilds", "layered")
            status = build.get("status", {})
            assert condition(build, "Ready")[1] == "Built", json.dumps(status, indent=1)
            assert status["pipelineRun"] != after, status
            return status

        status = stage.eventually("it is built", look)
        (pod,) = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={status['pipelineRun']}")
        logs = stage.kubectl("-n", NAMESPACE, "logs", pod["metadata"]["name"], "--all-containers")
        return status, logs

    def get(self, path, kind=oci.MANIFEST):
        """What the registry has of the image."""
        registry = stage.registry()
        connection = http.client.HTTPConnection(registry, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", f"/v2/{IMAGE}/{path}", headers={"Accept": kind})
            reply = connection.getresponse()
            body = reply.read()
            self.assertEqual(reply.status, 200, body)
            return json.loads(body)

    def layers(self, status):
        """The layers of the image, the lowest first."""
        manifest = self.get(f"manifests/{status['builtImage'].partition('@')[2]}")
        return [layer["digest"] for layer in manifest["layers"]]

    def seconds(self, status):
        """How long each step took."""
        return {step["name"]: step["seconds"] for step in status["steps"]}

    def test_1_b13_what_did_not_change_is_not_run_again(self):
        stage.push(self.files("one"))
        first, logs = self.built()
        self.assertEqual(
            [step["name"] for step in first["steps"]],
            ["clone", "verify", "fetch-layers", "build", "push", "push-layers"],
        )
        self.assertIn("no build has kept layers for this one", logs)
        self.assertNotIn("--> Using cache", logs)
        self.assertRegex(first.get("cacheDigest", ""), "^sha256:[0-9a-f]{64}$", logs)
        index = self.get(f"manifests/{first['cacheDigest']}", "application/vnd.oci.image.index.v1+json")
        self.assertEqual(len(index["manifests"]), 3, index)

        stage.push(self.files("two"))
        second, logs = self.built(after=first["pipelineRun"])
        self.assertIn(f"fetched {first['cacheDigest']}, 3 images", logs)
        self.assertIn("--> Using cache", logs)
        one, two = self.layers(first), self.layers(second)
        # The stamp stays, and the file is another one.
        self.assertEqual((one[:-1], len(one)), (two[:-1], len(two)), logs)
        self.assertNotEqual(one[-1], two[-1])
        times = self.seconds(first), self.seconds(second)
        print("seconds without and with layers of the build before:", *times, flush=True)
        # Each command has an image of its own; this is not one of them.
        registry = stage.registry()
        base = oci.tagged(registry, "tekton/shell", "local")
        self.assertEqual([first["baseDigest"], second["baseDigest"]], [base, base], logs)

        stage.convoke_as_admin("rebuild", "build/layered")
        third, logs = self.built(after=second["pipelineRun"])
        self.assertIn("no build has kept layers for this one", logs)
        self.assertNotEqual(self.layers(third)[-2], two[-2])
        # What the rebuild has made is what the next build takes.
        self.assertNotIn(third["cacheDigest"], (first["cacheDigest"], second["cacheDigest"]))
