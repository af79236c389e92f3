"""A commit becomes a digest that runs: Convoke and a real Tekton in a cluster of their own, installed as users install them.

    cd scripts/lib && python3 -B -m unittest -v test_builds        needs root; scripts/test runs it

Each test goes on where the one before it has stopped: their order is that of their names. Standard library only.
"""

import json
import unittest

import agents_team as team
import oci
from agents_stage import OPERATOR, Stage, condition, is_ready
from test_node import CLUSTER, Cluster, run_script
from test_tekton import BUILD_SECONDS, REGISTRY

NAMESPACE = team.NAMESPACE
IMAGE = f"{NAMESPACE}/reviewer"
SOURCE = "../images/reviewer"
MODEL_URL = f"http://scripted-model.{OPERATOR}.svc:8000/v1"
DOCKERFILE = "ARG BASE\nFROM ${BASE}\nCOPY note /note\n"


class BuildStage(Stage):
    """The cluster with Tekton, the operator, and a team with an agent whose image is built from its repository."""

    more_images = ("builder",)

    def up(self):
        self.cluster = Cluster()
        self.cluster.options = []
        self.state = self.cluster.state
        run_script(CLUSTER, "tools", "--tekton", state=self.state, seconds=BUILD_SECONDS)
        self.cluster.command("up", "--node", "--tekton")
        self.connect()
        self.install()
        self.name_images()
        # A build with a Dockerfile runs as root in its container.
        meta = {"name": NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        self.make_repository()
        self.sync()

    def in_cluster(self, image):
        """The name of an image for pods."""
        return self.images[image].replace(json.loads((self.state / "cluster/ready").read_text())["registry"], REGISTRY)

    def name_images(self):
        """The shipped template takes images from the internet; here it takes ours, as its README says."""
        name = "pipeline-template-dev"
        template = json.loads(self.get("configmaps", name, OPERATOR)["data"]["template.json"])
        for parameter in template["globalParameters"]:
            parameter["value"] = self.in_cluster("builder")
        self.api.merge("configmaps", OPERATOR, name, {"data": {"template.json": json.dumps(template)}})

    def first_files(self):
        source = {"gitSync": {}, "subfolder": "images/reviewer"}
        output = {"image": IMAGE, "insecure": True}
        build = {"source": source, "output": output, "buildArgs": {"BASE": self.in_cluster("agent")}}
        agent = {"buildRef": "reviewer", "modelAPI": "open", "model": "small", "resources": team.LITTLE}
        agent["config"] = {"instructions": "You are the reviewer."}
        objects = [
            {"kind": "AgentBuild", "metadata": {"name": "reviewer"}, "spec": build},
            {"kind": "Agent", "metadata": {"name": "reviewer"}, "spec": agent},
            team.ours("ModelAPI", "open", mode="External", external={"url": MODEL_URL}),
        ]
        head = {"apiVersion": "convoke.dev/v1alpha1"}
        files = {f"{one['kind'].lower()}.json": json.dumps(head | one, indent=1) for one in objects}
        return files | {f"{SOURCE}/Dockerfile": DOCKERFILE, f"{SOURCE}/note": "one\n"}

    def runs(self):
        """The PipelineRuns of the build, the oldest first."""
        runs = self.api.list("pipelineruns", NAMESPACE, "convoke.dev/name=reviewer")
        return sorted(runs, key=lambda run: run["metadata"]["creationTimestamp"])

    def built(self, commit):
        """Waits until the build has an image of a commit, and the agent runs it; gives its digest."""

        def look():
            build, agent = self.get("agentbuilds", "reviewer"), self.get("agents", "reviewer")
            assert build and agent, "they are not there"
            status = build.get("status", {})
            assert is_ready(build) and status.get("phase") == "Succeeded", json.dumps(status, indent=1)
            assert status["lastBuiltCommit"] == commit, json.dumps(status, indent=1)
            assert is_ready(agent), json.dumps(agent.get("status"), indent=1)
            image = status["builtImage"]
            (pod,) = self.pods("agent", "reviewer")
            assert pod["spec"]["containers"][0]["image"] == image, pod["spec"]["containers"][0]["image"]
            assert condition(pod, "Ready")[0] == "True"
            return image

        image = self.eventually(f"the agent runs the image of {commit}", look)
        name, _, digest = image.partition("@")
        assert name == f"{REGISTRY}/{IMAGE}", image
        return digest

    def note(self):
        """What is in the image that the agent runs."""
        (pod,) = self.pods("agent", "reviewer")
        return self.kubectl("-n", NAMESPACE, "exec", pod["metadata"]["name"], "--", "cat", "/note").strip()


stage = BuildStage()


def setUpModule():
    unittest.addModuleCleanup(stage.remove)
    stage.up()


class ACommitBecomesADigestThatRuns(unittest.TestCase):
    digests = {}

    def test_1_b1_b6_the_first_commit_is_built_and_runs(self):
        commit = stage.git("rev-parse", "HEAD")
        digest = stage.built(commit)
        self.assertEqual(stage.note(), "one")
        (run,) = stage.runs()
        status = stage.get("agentbuilds", "reviewer")["status"]
        self.assertEqual(status["pipelineRun"], run["metadata"]["name"])
        # Found again by its tag for people, and by what it is made of.
        registry = json.loads((stage.state / "cluster/ready").read_text())["registry"]
        key = run["metadata"]["annotations"]["convoke.dev/build-key"]
        self.assertEqual(oci.tagged(registry, IMAGE, commit[:7]), digest)
        self.assertEqual(oci.tagged(registry, IMAGE, f"cvk-{key}"), digest)
        pods = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={run['metadata']['name']}")
        self.assertEqual(len(pods), 1, "one pod a build")
        self.digests["one"] = digest

    def test_2_b1_a_commit_that_touches_nothing_of_it_builds_nothing(self):
        stage.push({"../README.md": "Nothing of the image.\n"})
        # Nothing is written, so nothing tells that it was looked at: the next test counts once more.
        self.assertEqual(len(stage.runs()), 1)
        status = stage.get("agentbuilds", "reviewer")["status"]
        self.assertTrue(status["builtImage"].endswith(self.digests["one"]), status)

    def test_3_b1_another_source_is_another_digest_and_the_agent_runs_it(self):
        commit = stage.push({f"{SOURCE}/note": "two\n"})
        digest = stage.built(commit)
        self.assertNotEqual(digest, self.digests["one"])
        self.assertEqual(stage.note(), "two")
        self.assertEqual(len(stage.runs()), 2)

    def test_4_b1_a_revert_runs_the_image_that_is_there(self):
        stage.push({f"{SOURCE}/note": "one\n"})

        def look():
            agent = stage.get("agents", "reviewer")
            (pod,) = stage.pods("agent", "reviewer")
            image = pod["spec"]["containers"][0]["image"]
            return is_ready(agent) and image.endswith(self.digests["one"])

        stage.eventually("the agent runs the first image", look)
        self.assertEqual(stage.note(), "one")
        self.assertEqual(len(stage.runs()), 2, "nothing was built")

    def test_5_b6_a_build_that_fails_leaves_the_agent_running(self):
        stage.push({f"{SOURCE}/Dockerfile": DOCKERFILE + "RUN exit 7\n"})

        def look():
            status = stage.get("agentbuilds", "reviewer").get("status", {})
            return status if status.get("phase") == "Failed" else None

        status = stage.eventually("the build fails", look)
        self.assertEqual(len(stage.runs()), 3)
        self.assertTrue(status["builtImage"].endswith(self.digests["one"]), status)
        self.assertEqual(condition({"status": status}, "Ready")[0], "False")
        self.assertTrue(is_ready(stage.get("agents", "reviewer")))
        self.assertEqual(stage.note(), "one")


if __name__ == "__main__":
    unittest.main()
