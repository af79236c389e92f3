"""What `scripts/cluster up --node --tekton` promises: builds run as in a cluster with a release of Tekton.

    cd scripts/lib && python3 -B -m unittest -v test_tekton        needs root, and minutes the first time

One cluster, in a state folder of its own, for all of these. Standard library only.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import oci
import tekton
from kube_api import Api, Refused
from test_images import images
from test_node import CLUSTER, POD_SECONDS, Cluster, run_script

HERE = Path(__file__).resolve().parent
# Go's compiler may have a cold cache.
BUILD_SECONDS = 1800
REGISTRY = "registry.convoke-system.svc:5000"
NAMESPACE = "builds"
# The run that the operator makes of the shipped steps, as its own tests have it: one pod.
OPERATORS_RUN = (
    HERE.parents[1] / "src/controllers/agent_build/tests/snapshots"
    "/convoke__controllers__agent_build__pipeline_run__tests__b3_the_shipped_template_renders.snap"
)
DOCKERFILE = """\
ARG BASE
FROM ${BASE}
ARG SAID
COPY Dockerfile /Dockerfile
RUN printf %s "$SAID" > /said
ENTRYPOINT ["cat", "/said"]
"""
# An argument is data, whatever it looks like.
SAID = "a 'b' \"c\"; rm -rf /"


class TektonCluster(Cluster):
    """A cluster with a node and Tekton, an image with busybox, and a namespace for runs."""

    options = (f"--namespace={NAMESPACE}",)
    up_options = ("--node", "--tekton")

    def up(self):
        super().up()
        self.machine_address = json.loads((self.state / "cluster/ready").read_text())["machine"]
        digest = tekton.image("shell", None, user="0:0").push(self.registry, "everything", "1")
        self.busybox = f"{REGISTRY}/everything@{digest}"
        self.api = Api(json.loads(self.kubeconfig.read_text()))
        self.kubectl("create", "namespace", NAMESPACE)
        self.eventually("a ServiceAccount", lambda: self.kubectl("get", "serviceaccount", "default", "-o", "name"))

    def run(self, name, tasks, results=None, workspaces=(), version="v1", **spec):
        """Starts a PipelineRun of tasks (name: TaskSpec), each after the one before it; `results` are values by name.

        Each task has all workspaces, which are emptyDirs.
        """
        pipeline_tasks = [
            {
                "name": task,
                "taskSpec": task_spec | {"workspaces": [{"name": workspace} for workspace in workspaces]},
                "workspaces": [{"name": workspace, "workspace": workspace} for workspace in workspaces],
            }
            for task, task_spec in tasks.items()
        ]
        for before, task in zip(pipeline_tasks, pipeline_tasks[1:], strict=False):
            task["runAfter"] = [before["name"]]
        pipeline = {
            "tasks": pipeline_tasks,
            "workspaces": [{"name": workspace} for workspace in workspaces],
            "results": [{"name": result, "value": value} for result, value in (results or {}).items()],
        }
        empty = [{"name": workspace, "emptyDir": {}} for workspace in workspaces]
        run = {
            "apiVersion": f"tekton.dev/{version}",
            "kind": "PipelineRun",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"pipelineSpec": pipeline, "workspaces": empty} | spec,
        }
        self.api.request("POST", f"/apis/tekton.dev/{version}/namespaces/{NAMESPACE}/pipelineruns", run)

    def step(self, name, image=None, **more):
        """A step."""
        return {"name": name, "image": image or self.busybox} | more

    def ended(self, name, seconds=POD_SECONDS):
        """A PipelineRun that has ended. Raises AssertionError unless it succeeded."""

        def probe():
            run = self.api.get("pipelineruns", NAMESPACE, name)
            conditions = run.get("status", {}).get("conditions", [])
            found = next((c for c in conditions if c["type"] == "Succeeded"), {"status": "Unknown"})
            assert found["status"] != "Unknown", found
            return run, found

        run, condition = self.eventually(f"the end of the run {name}", probe, seconds)
        if condition["status"] != "True":
            logs = [self.kubectl("logs", pod, "--all-containers", "--prefix") for pod in self.pods(name)]
            raise AssertionError(f"{name}: {condition}\n{''.join(logs)}")
        return run

    def pods(self, name):
        """The names of a run's pods."""
        found = self.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={name}")
        return [pod["metadata"]["name"] for pod in found]

    def processes(self, name):
        """The processes of this name in the pods of this cluster."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                ours = self.machine.cgroups.name in (folder / "cgroup").read_text()
                if ours and (folder / "comm").read_text().strip() == name:
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def controller(self):
        """The status of the controller's container; None when there is none."""
        pods = self.api.list("pods", tekton.NAMESPACE, "app.kubernetes.io/component=controller")
        statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", [])]
        return statuses[0] if statuses else None


def set_params(params, values):
    """Gives those of some params that have one of these names another value."""
    for param in params:
        param["value"] = values.get(param["name"], param["value"])


def results(run):
    """The results of a PipelineRun, by name."""
    return {result["name"]: result["value"] for result in run["status"].get("results", [])}


class Builds(unittest.TestCase):
    """One cluster for all of these."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = TektonCluster()
        cls.addClassCleanup(cls.cluster.remove)
        run_script(CLUSTER, "tools", "--tekton", state=cls.cluster.state, seconds=BUILD_SECONDS)
        cls.cluster.up()

    def test_steps_of_a_run_share_a_workspace_and_hand_on_a_result(self):
        cluster = self.cluster
        # A folder that is not there yet: Tekton makes it.
        folder = "$(workspaces.shared.path)/made"
        steps = [
            cluster.step("write", script="#!/bin/sh\nprintf 'hello from a step' > greeting\n", workingDir=folder),
            cluster.step(
                "read", command=["sh", "-c"], args=[f"tee $(results.said.path) < {folder}/greeting"]
            ),
        ]
        tasks = {"greet": {"steps": steps, "results": [{"name": "said"}]}}
        cluster.run("greeting", tasks, {"said": "$(tasks.greet.results.said)"}, ["shared"])
        run = cluster.ended("greeting")
        self.assertEqual(results(run), {"said": "hello from a step"})
        (child,) = run["status"]["childReferences"]
        pod = cluster.api.get("taskruns", NAMESPACE, child["name"])["status"]["podName"]
        self.assertEqual(cluster.pods("greeting"), [pod])
        status = cluster.api.get("pods", NAMESPACE, pod)["status"]
        ended = {step["name"]: step["state"]["terminated"]["exitCode"] for step in status["containerStatuses"]}
        self.assertEqual(ended, {"step-write": 0, "step-read": 0})
        self.assertEqual(cluster.kubectl("logs", pod, "-c", "step-read"), "hello from a step")

    def test_pods_of_a_deleted_run_are_deleted(self):
        cluster = self.cluster
        cluster.run("short", {"task": {"steps": [cluster.step("nothing", command=["true"])]}})
        cluster.ended("short")
        self.assertEqual(len(cluster.pods("short")), 1)
        cluster.api.delete("pipelineruns", NAMESPACE, "short")
        cluster.eventually("no pod", lambda: not cluster.pods("short"))

    def test_a_failed_step_fails_the_run(self):
        cluster = self.cluster
        cluster.run("broken", {"task": {"steps": [cluster.step("fail", command=["sh", "-c", "echo no; exit 3"])]}})
        with self.assertRaisesRegex(AssertionError, "(?s)Tasks Completed: 1 .Failed: 1.*step-fail. no"):
            cluster.ended("broken")

    def test_the_webhook_refuses_a_malformed_run_and_says_why(self):
        with self.assertRaises(Refused) as caught:
            self.cluster.run("malformed", {"task": {"steps": [{"name": "without-image", "command": ["true"]}]}})
        self.assertEqual(caught.exception.code, 400)
        said = json.loads(caught.exception.text)["message"]
        self.assertIn(tekton.DENIED, said)
        self.assertIn("spec.pipelineSpec.tasks[0].taskSpec.steps[0].Image", said)
        self.assertIsNone(self.cluster.api.get("pipelineruns", NAMESPACE, "malformed"))

    def test_a_run_of_an_older_version_is_converted(self):
        tasks = {"task": {"steps": [self.cluster.step("nothing", command=["true"])]}}
        self.cluster.run("older", tasks, version="v1beta1", serviceAccountName="default", status="PipelineRunPending")
        spec = self.cluster.api.get("pipelineruns", NAMESPACE, "older")["spec"]
        self.assertEqual(spec["taskRunTemplate"]["serviceAccountName"], "default")
        self.assertNotIn("serviceAccountName", spec)
        # The webhook filled that in.
        self.assertIn("pipeline", spec["timeouts"])

    def test_the_run_that_the_operator_makes_builds_a_commit_and_pushes_the_image(self):
        cluster = self.cluster
        url, commit = self.serve_repository({"images/reviewer/Dockerfile": DOCKERFILE})
        built, _ = images(cluster.state, "push", "builder", "convoke")
        builder, convoke = (built[name].replace(cluster.registry, REGISTRY) for name in ("builder", "convoke"))
        image = "tests/reviewer"
        run = json.loads(OPERATORS_RUN.read_text().rpartition("\n---\n")[2])
        del run["metadata"]["ownerReferences"]
        run["metadata"] |= {"name": "reviewer", "namespace": NAMESPACE}
        given = {
            "build-args": [f"BASE={cluster.busybox}", f"SAID={SAID}"],
            "image": f"{REGISTRY}/{image}",
            "insecure": "true",
            "key-tag": "cvk-1",
            "repo-url": url,
            "revision": commit,
            "subfolder": "images/reviewer",
            "tag": "one",
        }
        set_params(run["spec"]["params"], given)
        (task,) = run["spec"]["pipelineSpec"]["tasks"]
        images_of_steps = {"clone_git-image", "verify_git-image", "build_buildah-image"}
        set_params(task["params"], dict.fromkeys(images_of_steps, builder) | {"push_convoke-image": convoke})
        cluster.api.create("pipelineruns", NAMESPACE, run)
        found = results(cluster.ended("reviewer", 2 * POD_SECONDS))
        self.assertEqual(found["IMAGE_URL"], f"{REGISTRY}/{image}:one")
        digest = found["IMAGE_DIGEST"]
        for tag in ("one", "cvk-1"):
            self.assertEqual(oci.tagged(cluster.registry, image, tag), digest)
        # The image is what the result says: a pod runs it.
        cluster.kubectl("run", "built", f"--image={REGISTRY}/{image}@{digest}", "--restart=Never")
        cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"--timeout={POD_SECONDS}s", "pod/built")
        self.assertEqual(cluster.kubectl("logs", "built"), SAID)
        # All of it was one pod, and no volume outlives it.
        self.assertEqual(len(cluster.pods("reviewer")), 1)
        self.assertEqual(cluster.kubectl("get", "pvc", "-A", "-o", "name"), "")

    def serve_repository(self, files):
        """A repository with one commit of these files, which pods reach; gives its URL and the commit."""
        folder = Path(tempfile.mkdtemp(prefix="convoke-tekton-"))
        self.addCleanup(shutil.rmtree, folder)
        work = folder / "work"
        work.mkdir()
        for name, text in files.items():
            (work / name).parent.mkdir(parents=True)
            (work / name).write_text(text)
        who = ["-c", "user.name=test", "-c", "user.email=test@example.com"]
        for command in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "-m", "one"]):
            subprocess.run(["git", *command], cwd=work, check=True)
        subprocess.run(["git", "clone", "--quiet", "--bare", work, folder / "code.git"], check=True)
        command = [sys.executable, "-B", HERE / "git_http.py", folder / "code.git"]
        command += ["--address", self.cluster.machine_address]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        port = int(server.stdout.readline())
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=work, capture_output=True, text=True, check=True)
        return f"http://{self.cluster.machine_address}:{port}/code.git", commit.stdout.strip()

    def test_a_run_goes_on_after_its_controller_was_killed(self):
        cluster = self.cluster
        wait = cluster.step("wait", command=["sh", "-c", "until [ -e /go ]; do sleep 0.1; done"])
        last = cluster.step("last", command=["sh", "-c", "printf end > $(results.end.path)"])
        tasks = {"first": {"steps": [wait]}, "second": {"steps": [last], "results": [{"name": "end"}]}}
        cluster.run("lonely", tasks, {"end": "$(tasks.second.results.end)"})

        def running():
            for pod in cluster.pods("lonely"):
                steps = cluster.api.get("pods", NAMESPACE, pod)["status"].get("containerStatuses", [])
                if any("running" in step["state"] for step in steps):
                    return pod
            return None

        pod = cluster.eventually("the first step", running)
        before = cluster.controller()
        (process,) = cluster.processes("controller")
        os.kill(process, signal.SIGKILL)
        cluster.eventually(
            "another controller",
            lambda: (now := cluster.controller()) and now["restartCount"] > before["restartCount"] and now["ready"],
        )
        cluster.kubectl("exec", pod, "-c", "step-wait", "--", "touch", "/go")
        run = cluster.ended("lonely", tekton.LEASE_SECONDS + POD_SECONDS)
        self.assertEqual(results(run), {"end": "end"})
        # Nothing was done twice.
        self.assertEqual(len(cluster.pods("lonely")), 2)

    def test_up_again_changes_nothing(self):
        before = self.cluster.controller()["containerID"]
        self.assertIn("already runs", self.cluster.command("up", "--node", "--tekton"))
        self.assertEqual(self.cluster.controller()["containerID"], before)


class WithoutANode(unittest.TestCase):
    def test_up_says_that_tekton_needs_a_node(self):
        cluster = Cluster()
        self.addCleanup(cluster.remove)
        self.assertIn("--tekton needs --node", cluster.command("up", "--tekton"))


if __name__ == "__main__":
    unittest.main()
