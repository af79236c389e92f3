"""The operator is killed at each stage of a build, from the commit to the pods, and Tekton's webhook and controller are away.

test_builds.py runs these tests in its cluster. They need nothing of its other tests. Standard library only.
"""

import json
import time
import unittest

from agents_stage import OPERATOR, condition
from builds_stage import DOCKERFILE, NAMESPACE, SOURCE, TEKTON, stage


class KilledAtEachStage(unittest.TestCase):
    """After each kill the agent runs the image of the commit, which was built by one run."""

    @classmethod
    def setUpClass(cls):
        # Tests of rollouts may have left the shortest deadline.
        agent = json.loads((stage.state / "work/team/agent.json").read_text())
        agent["spec"].pop("progressDeadline", None)
        stage.push({"agent.json": json.dumps(agent)})

    def begin(self, note, more=""):
        """Commits another source and has it looked at; gives the commit."""
        commit = stage.commit({f"{SOURCE}/Dockerfile": DOCKERFILE + more, f"{SOURCE}/note": f"{note}\n"})
        asked = {"metadata": {"annotations": {"convoke.dev/requestedAt": commit}}}
        stage.api.merge("gitsyncs", NAMESPACE, NAMESPACE, asked)
        return commit

    def kill(self):
        stage.stop_operator()
        stage.eventually("the operator is back", stage.operator)

    def of(self, commit):
        """The one run of a commit."""
        (run,) = [one for one in stage.runs() if one["metadata"]["annotations"]["convoke.dev/commit"] == commit]
        return run

    def pod(self, commit):
        (pod,) = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={self.of(commit)['metadata']['name']}")
        return pod

    def step(self, before, state):
        """A stage: this step runs, or has ended. All containers of a pod start at once, and wait for the step before them."""

        def look(commit):
            states = {one["name"]: one["state"] for one in self.pod(commit)["status"]["containerStatuses"]}
            return state in states[f"step-{before}"] or "terminated" in states[f"step-{before}"]

        return look

    def applied(self, commit):
        sync = stage.get("gitsyncs", NAMESPACE)["status"]
        assert commit in json.dumps(sync.get("lastAppliedRevision")), sync
        return True

    def rolls(self, commit):
        """The Deployment has the image, and its pod is not there yet or not ready."""
        status = stage.get("agentbuilds", "reviewer")["status"]
        assert status.get("lastBuiltCommit") == commit, status
        deployment = stage.get("deployments", "agent-reviewer")
        return deployment["spec"]["template"]["spec"]["containers"][0]["image"] == status["builtImage"]

    def test_1_c1_b7_killed_at_each_stage_a_commit_is_built_once_and_runs(self):
        stages = {
            "applied": self.applied,
            "run": self.of,
            "pod": self.pod,
            "clone": self.step("clone", "running"),
            "build": self.step("verify", "terminated"),
            "push": self.step("build", "terminated"),
            "rolls": self.rolls,
        }
        for name, reached in stages.items():
            with self.subTest(name):
                commit = self.begin(f"killed at {name}")
                deadline = time.monotonic() + 240
                # Often: a stage may last a moment.
                while not self.is_reached(reached, commit):
                    self.assertLess(time.monotonic(), deadline, name)
                    time.sleep(0.05)
                self.kill()
                stage.built(commit)
                self.assertEqual(stage.note(), f"killed at {name}")
                self.of(commit)

    def is_reached(self, reached, commit):
        try:
            return reached(commit)
        except (AssertionError, KeyError, ValueError, OSError):
            return False

    def test_2_c1_b7_a_run_that_ends_while_there_is_no_operator_is_told(self):
        commit = self.begin("ended meanwhile", "RUN sleep 20\n")
        stage.eventually("its pod is there", lambda: self.pod(commit))
        with stage.without("convoke", "app.kubernetes.io/name=convoke", OPERATOR):
            ended = lambda: condition(self.of(commit), "Succeeded")[0] == "True"  # noqa: E731
            stage.eventually("its run has ended", ended)
            status = stage.get("agentbuilds", "reviewer")["status"]
            self.assertEqual(status["phase"], "Building", status)
        stage.built(commit)
        self.of(commit)

    def test_3_c1_b8_killed_while_tekton_is_away_a_commit_is_built_once(self):
        with stage.without("tekton-pipelines-controller", "app.kubernetes.io/component=controller", TEKTON):
            commit = self.begin("tekton was away")
            stage.eventually("its run is there", lambda: self.of(commit))
            self.kill()
            self.assertNotIn("status", self.of(commit))
        stage.built(commit)
        self.of(commit)

    def denied(self):
        """How often the API server has refused something because Tekton's webhook did not answer."""
        lines = stage.kubectl("get", "--raw", "/metrics").splitlines()
        failed = [line for line in lines if line.startswith("apiserver_admission_webhook_rejection_count{") and "tekton" in line]
        return sum(float(line.rpartition(" ")[2]) for line in failed if "calling_webhook_error" in line)

    def test_4_c1_b7_b8_killed_while_the_webhook_of_tekton_is_away_a_commit_keeps_its_place(self):
        with stage.without("tekton-pipelines-webhook", "app.kubernetes.io/component=webhook", TEKTON):
            commit = self.begin("the webhook was away")

            def told():
                found = stage.get("agentbuilds", "reviewer")
                _, reason, message = condition(found, "Ready")
                assert reason == "PipelineRunRefused" and "webhook" in message, json.dumps(found["status"], indent=1)
                return found["status"]

            before = stage.eventually("it is told", told)
            self.assertIn("queuedAt", before)
            self.assertNotIn(commit, [one["metadata"]["annotations"]["convoke.dev/commit"] for one in stage.runs()])
            self.kill()
            # The next operator asks once more, too.
            denied = self.denied()
            stage.eventually("it was refused again", lambda: self.denied() > denied)
            self.assertEqual(told()["queuedAt"], before["queuedAt"])
        stage.built(commit)
        self.of(commit)
