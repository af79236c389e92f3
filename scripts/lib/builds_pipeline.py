"""`spec.pipeline` of an AgentBuild.

test_builds.py runs this test in its cluster. It needs nothing of its other tests. Standard library only.
"""

import json
import shlex
import unittest

from builds_stage import DOCKERFILE, NAMESPACE, stage
from test_tekton import REGISTRY

OWN = "../images/own"


class APipelineOfItsOwn(unittest.TestCase):
    """`spec.pipeline`: a second Dockerfile is built before that of the image."""

    # A shell would do something with it.
    WORD = "it's \"$HOME\"; exit 9 #"

    def files(self, expected):
        """The AgentBuild `own` and its source. The step `try` fails unless its build argument is what is expected."""
        base = stage.in_cluster("agent")
        parameters = [
            {"name": "dockerfile", "value": "Dockerfile.test"},
            {"name": "build-args", "values": [f"BASE={base}", f"WORD={self.WORD}"]},
        ]
        steps = [
            {"name": "clone", "configMap": "convoke-step-clone"},
            {"name": "verify", "configMap": "convoke-step-verify", "enabled": False},
            {"name": "try", "configMap": "convoke-step-build", "parameters": parameters},
            {"name": "build", "configMap": "convoke-step-build"},
            {"name": "push", "configMap": "convoke-step-push"},
        ]
        build = {
            "source": {"gitSync": {}, "subfolder": "images/own"},
            "output": {"image": f"{NAMESPACE}/own", "insecure": True},
            "buildArgs": {"BASE": base},
            "pipeline": {"parameters": [{"name": "buildah-image", "value": stage.in_cluster("builder")}], "steps": steps},
        }
        head = {"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "metadata": {"name": "own"}}
        tried = f'ARG BASE\nFROM ${{BASE}}\nARG WORD\nRUN test "$WORD" = {shlex.quote(expected)}\n'
        return {
            "own-build.json": json.dumps(head | {"spec": build}),
            f"{OWN}/Dockerfile": DOCKERFILE,
            f"{OWN}/Dockerfile.test": tried,
            f"{OWN}/note": "own\n",
        }

    def ended(self, commit, phase):
        """Waits until the build of a commit has ended like this; gives its status."""

        def look():
            status = stage.get("agentbuilds", "own").get("status", {})
            assert status.get("phase") == phase, json.dumps(status, indent=1)
            assert status["lastAttemptedCommit"] == commit, json.dumps(status, indent=1)
            return status

        return stage.eventually(f"{commit} is {phase}", look)

    def test_1_b3_b4_its_steps_run_with_their_parameters(self):
        status = self.ended(stage.push(self.files("something else")), "Failed")
        failure = status["failure"]
        self.assertEqual((failure["step"], failure["reason"], failure["exitCode"]), ("try", "BuildFailed", 30), failure)
        status = self.ended(stage.push(self.files(self.WORD)), "Succeeded")
        self.assertEqual([step["name"] for step in status["steps"]], ["clone", "try", "build", "push"])
        self.assertRegex(status["builtImage"], f"^{REGISTRY}/{NAMESPACE}/own@sha256:[0-9a-f]{{64}}$")
