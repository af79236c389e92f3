"""Build profiles (`--build-profile` of the operator): what builds, and that the image is the same.

test_builds.py runs this test in its cluster. It needs nothing of its other tests. Standard library only.
"""

import json
import unittest

from agents_stage import OPERATOR, condition
from builds_stage import NAMESPACE, stage

FOLDER = "../images/profiled"
OPTION = "--build-profile="
# Owners and folders are what a user namespace or a volume could change.
MAKE = "RUN mkdir /made && cp /note /made/note && chown 33:33 /made/note\n"
DOCKERFILE = f"ARG BASE\nFROM ${{BASE}}\nCOPY note /note\nUSER 0\n{MAKE}"


class WithoutBaseline(unittest.TestCase):
    """The node here runs `rootless` and `privileged`. Its containerd knows no user namespaces."""

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

    def context(self, run):
        """The security context of the step that builds."""
        (pod,) = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={run}")
        (step,) = [one for one in pod["spec"]["containers"] if one["name"] == "step-build"]
        return step["securityContext"]

    def test_1_b1_b3_every_profile_makes_the_same_image(self):
        build = {
            "source": {"gitSync": {}, "subfolder": "images/profiled"},
            "output": {"image": f"{NAMESPACE}/profiled", "insecure": True},
            "buildArgs": {"BASE": stage.in_cluster("agent")},
        }
        head = {"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "metadata": {"name": "profiled"}}
        files = {"profiled.json": json.dumps(head | {"spec": build})}
        stage.push(files | {f"{FOLDER}/Dockerfile": DOCKERFILE, f"{FOLDER}/note": "profiled\n"})
        status = self.built()
        image = status["builtImage"]
        for profile, expected in (("rootless", {"runAsUser": 1000}), ("privileged", {"privileged": True})):
            self.start_with(profile)
            # The option alone builds nothing.
            self.assertEqual(self.built()["pipelineRun"], status["pipelineRun"])
            stage.convoke_as_admin("rebuild", "build/profiled")
            status = self.built(after=status["pipelineRun"])
            context = self.context(status["pipelineRun"])
            self.assertEqual(context | expected, context)
            self.assertEqual(status["builtImage"], image, profile)
