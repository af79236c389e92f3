"""`spec.pipeline` of an AgentBuild.

test_builds.py runs this test in its cluster. It needs nothing of its other tests. Standard library only.
"""

import json
import shlex
import unittest

import oci
from builds_stage import DOCKERFILE, NAMESPACE, stage
from test_tekton import REGISTRY

OWN = "../images/own"
# Fails unless the command runs as pods of agents do.
AS_A_POD = "test `id -u`:`id -g` = 1000:1000"


class APipelineOfItsOwn(unittest.TestCase):
    """`spec.pipeline`: a second Dockerfile is built before that of the image, and the image is tested before it is pushed."""

    # A shell would do something with it, and a build argument of several lines is one, too.
    WORD = "it's \"$HOME\"; exit 9 #\n--build-arg=X=1"

    def files(self, expected):
        """The AgentBuild `own` and its source. The step `try` fails unless its build argument is what is expected."""
        base = stage.in_cluster(stage.base)
        parameters = [
            {"name": "dockerfile", "value": "Dockerfile.test"},
            {"name": "build-args", "values": [f"BASE={base}", f"WORD={self.WORD}"]},
        ]
        steps = [
            {"name": "clone", "configMap": "convoke-step-clone"},
            {"name": "verify", "configMap": "convoke-step-verify", "enabled": False},
            {"name": "try", "configMap": "convoke-step-build", "parameters": parameters},
            {"name": "build", "configMap": "convoke-step-build"},
            self.trying(f'test "$1" = {shlex.quote(self.WORD)} && test `cat /note` = own && {AS_A_POD}', self.WORD),
            {"name": "push", "configMap": "convoke-step-push"},
        ]
        build = {
            "source": {"gitSync": {}, "subfolder": "images/own"},
            "output": {"image": f"{NAMESPACE}/own", "insecure": True},
            "buildArgs": {"BASE": base},
            "pipeline": {"parameters": [{"name": "buildah-image", "value": stage.in_cluster("builder")}], "steps": steps},
        }
        head = {"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "metadata": {"name": "own"}}
        # A line of a Dockerfile has no line breaks.
        lines = shlex.join(expected.splitlines())
        tried = f"ARG BASE\nFROM ${{BASE}}\nARG WORD\nRUN test \"$WORD\" = \"$(printf '%s\\n' {lines})\"\n"
        return {
            "own-build.json": json.dumps(head | {"spec": build}),
            f"{OWN}/Dockerfile": DOCKERFILE,
            f"{OWN}/Dockerfile.test": tried,
            f"{OWN}/note": "own\n",
        }

    def trying(self, script, *words):
        """The step `test`."""
        command = {"name": "test-command", "values": ["sh", "-euc", script, "sh", *words]}
        return {"name": "test", "configMap": "convoke-step-test", "parameters": [command]}

    def appended(self, script):
        """The AgentBuild `own` with `strategy: Append`."""
        steps = [
            {"name": "clone", "configMap": "convoke-step-clone"},
            {"name": "append-layout", "configMap": "convoke-step-append-layout"},
            self.trying(script),
            {"name": "push", "configMap": "convoke-step-push"},
        ]
        build = {
            "strategy": "Append",
            "append": {"baseImage": stage.in_cluster(stage.base)},
            "source": {"gitSync": {}, "subfolder": "images/own"},
            "output": {"image": f"{NAMESPACE}/own", "insecure": True},
            "pipeline": {"parameters": [{"name": "buildah-image", "value": stage.in_cluster("builder")}], "steps": steps},
        }
        head = {"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "metadata": {"name": "own"}}
        return {"own-build.json": json.dumps(head | {"spec": build})}

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
        self.assertEqual([step["name"] for step in status["steps"]], ["clone", "try", "build", "test", "push"])
        self.assertRegex(status["builtImage"], f"^{REGISTRY}/{NAMESPACE}/own@sha256:[0-9a-f]{{64}}$")

    def test_2_b3_b11_an_image_whose_tests_fail_is_not_pushed(self):
        """`strategy: Append`: the test sees the appended folder as its working directory, and cannot become root."""
        privileges = 'grep "^NoNewPrivs:.*1$" /proc/self/status'
        # What is written just before the end may be lost (docs/SHORTCOMINGS.md).
        said = f'{AS_A_POD}; test `cat note`:"$PWD" = own:/app; {privileges}; echo so-far-so-good; sleep 2; exit 7'
        commit = stage.push(self.appended(said))
        status = self.ended(commit, "Failed")
        failure = status["failure"]
        self.assertEqual((failure["class"], failure["reason"]), ("Build", "TestsFailed"), failure)
        self.assertEqual((failure["step"], failure["exitCode"]), ("test", 36), failure)
        (pod,) = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={status['pipelineRun']}")
        logs = stage.kubectl("-n", NAMESPACE, "logs", pod["metadata"]["name"], "-c", "step-test")
        self.assertIn("so-far-so-good", logs)
        self.assertIn("the tests failed: the command ended with exit code 7", logs)
        registry = stage.registry()
        self.assertIsNone(oci.tagged(registry, f"{NAMESPACE}/own", commit[:7]), "it was pushed")
