"""Build profiles (`--build-profile` of the operator): what builds, and that the image is the same.

test_builds.py runs this test in its cluster. It needs nothing of its other tests. Standard library only.
"""

import json
import os
import re
import unittest

from agents_stage import OPERATOR, condition
from builds_stage import NAMESPACE, stage
from test_tekton import REGISTRY

FOLDER = "../images/profiled"
OPTION = "--build-profile="
BUILD = "step-build"
# Owners and folders are what a user namespace or a volume could change. The log tells who root is on the node.
MAKE = "RUN cat /proc/self/uid_map && mkdir /made && cp /note /made/note && chown 33:33 /made/note\n"
DOCKERFILE = f"ARG BASE\nFROM ${{BASE}}\nCOPY note /note\nUSER 0\n{MAKE}"


def has_user_namespaces():
    """Whether the node gives pods user namespaces. With CONVOKE_CONTAINERD=2 it must."""
    (node,) = json.loads(stage.kubectl("get", "nodes", "--output=json"))["items"]
    handlers = node["status"].get("runtimeHandlers", [])
    has = any(one.get("features", {}).get("userNamespaces") for one in handlers)
    assert has or os.environ.get("CONVOKE_CONTAINERD") != "2", node["status"]
    return has


class WithoutBaseline(unittest.TestCase):
    """`rootless` and `privileged`, and `userns` on a node that has user namespaces: that of CONVOKE_CONTAINERD=2."""

    @classmethod
    def setUpClass(cls):
        stage.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged", "--overwrite")
        cls.addClassCleanup(cls.start_with, None)

    @classmethod
    def start_with(cls, profile):
        """Starts the operator with this profile, or without one."""
        deployment = stage.get("deployments", "convoke", OPERATOR)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        args = [arg for arg in container["args"] if not arg.startswith(OPTION)]
        args += [f"{OPTION}{profile}"] if profile else []
        path = "/spec/template/spec/containers/0/args"
        stage.api.patch("deployments", OPERATOR, "convoke", {"op": "replace", "path": path, "value": args})
        stage.kubectl("-n", OPERATOR, "rollout", "status", "deployment/convoke", "--timeout=120s", seconds=120)

    def built(self, after=None):
        """Waits for an image of another run than this one; gives the status."""

        def look():
            build = stage.get("agentbuilds", "profiled")
            status = build.get("status", {})
            assert condition(build, "Ready")[1] == "Built", json.dumps(status, indent=1)
            assert status["pipelineRun"] != after, status
            return status

        return stage.eventually("it is built", look)

    def pod(self, run):
        (pod,) = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={run}")
        return pod

    def context(self, run):
        """The security context of the step that builds."""
        (step,) = [one for one in self.pod(run)["spec"]["containers"] if one["name"] == BUILD]
        return step["securityContext"]

    def root_of(self, run):
        """Which user of the namespace above was root in `RUN`, and how many ids were mapped with it."""
        log = stage.kubectl("-n", NAMESPACE, "logs", self.pod(run)["metadata"]["name"], "-c", BUILD)
        (first,) = re.findall(r"^ +0 +(\d+) +(\d+)$", log, re.MULTILINE)
        return tuple(map(int, first))

    def test_1_b1_b3_every_profile_makes_the_same_image(self):
        build = {
            "source": {"gitSync": {}, "subfolder": "images/profiled"},
            "output": {"image": f"{NAMESPACE}/profiled", "insecure": True},
            "buildArgs": {"BASE": f"{REGISTRY}/tekton/shell:local"},
        }
        head = {"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "metadata": {"name": "profiled"}}
        files = {"profiled.json": json.dumps(head | {"spec": build})}
        stage.push(files | {f"{FOLDER}/Dockerfile": DOCKERFILE, f"{FOLDER}/note": "profiled\n"})
        status = self.built()
        image = status["builtImage"]
        self.assertEqual(self.root_of(status["pipelineRun"])[0], 0)
        profiles = {"rootless": {"runAsUser": 1000}, "privileged": {"privileged": True}}
        if has_user_namespaces():
            profiles["userns"] = {"runAsUser": 0, "capabilities": {"add": ["SETFCAP", "SYS_ADMIN"]}}
        for profile, expected in profiles.items():
            self.start_with(profile)
            # The option alone builds nothing.
            self.assertEqual(self.built()["pipelineRun"], status["pipelineRun"])
            stage.convoke_as_admin("rebuild", "build/profiled")
            status = self.built(after=status["pipelineRun"])
            context = self.context(status["pipelineRun"])
            self.assertEqual(context | expected, context)
            self.assertEqual(status["builtImage"], image, profile)
            self.assertEqual(self.pod(status["pipelineRun"])["spec"].get("hostUsers"), {"userns": False}.get(profile))
            root, users = self.root_of(status["pipelineRun"])
            if profile == "userns":
                # Ids that nobody on the node has.
                self.assertEqual((root % 65536, users), (0, 65536))
                self.assertGreater(root, 0)
            else:
                self.assertEqual(root, context["runAsUser"])
