"""A commit becomes a digest that runs: Convoke and a real Tekton in a cluster of their own, installed as users install them.

    cd scripts/lib && python3 -B -m unittest -v test_builds        needs root; scripts/test runs it

Each test goes on where the one before it has stopped: their order is that of their names. Standard library only.
"""

import json
import re
import subprocess
import unittest
import urllib.request
from pathlib import Path

import builds_cache
import builds_commits
import builds_killed
import builds_many
import builds_packages
import builds_pipeline
import builds_private
import builds_profiles
import builds_scans
import oci
from agents_stage import OPERATOR, condition, is_ready
from builds_stage import DOCKERFILE, IMAGE, NAMESPACE, PASSWORD, PATIENCE_SECONDS, SOURCE, TEKTON, stage
from test_tekton import REGISTRY


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
        steps = {step["name"]: step["seconds"] for step in status["steps"]}
        self.assertEqual(list(steps), ["clone", "verify", "build", "push"], status["steps"])
        self.assertTrue(all(0 <= seconds < PATIENCE_SECONDS for seconds in steps.values()), steps)
        # Found again by its tag for people, and by what it is made of.
        registry = stage.registry()
        key = run["metadata"]["annotations"]["convoke.dev/build-key"]
        self.assertEqual(oci.tagged(registry, IMAGE, commit[:7]), digest)
        self.assertEqual(oci.tagged(registry, IMAGE, f"cvk-{key}"), digest)
        pods = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={run['metadata']['name']}")
        self.assertEqual(len(pods), 1, "one pod a build")
        self.assertEqual(status["baseDigest"], stage.images[stage.base].rpartition("@")[2])
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

    def failed(self, what):
        """Waits until the build fails; gives its status."""

        def look():
            status = stage.get("agentbuilds", "reviewer").get("status", {})
            assert status.get("phase") == "Failed", json.dumps(status, indent=1)
            return status

        return stage.eventually(what, look)

    def test_5_b6_b7_a_build_that_fails_says_why_and_leaves_the_agent_running(self):
        said = f"so-it-is https://bob:{PASSWORD}@registry.example.com/"
        # What is written just before the end may be lost (docs/SHORTCOMINGS.md).
        stage.push({f"{SOURCE}/Dockerfile": DOCKERFILE + f"RUN echo {said} && sleep 2 && exit 7\n"})
        status = self.failed("the build fails")
        self.assertEqual(len(stage.runs()), 3)
        self.assertTrue(status["builtImage"].endswith(self.digests["one"]), status)
        self.assertEqual(condition({"status": status}, "Ready")[:2], ("False", "BuildFailed"))
        failure = status["failure"]
        self.assertEqual((failure["class"], failure["step"], failure["exitCode"]), ("Build", "build", 30), failure)
        self.assertRegex(failure["log"], r"(?m)^so-it-is https://\*\*\*@registry.example.com/$")
        self.assertIn("the build failed", failure["log"].splitlines()[-1])
        self.assertNotIn(PASSWORD, json.dumps(status))
        self.assertEqual([one["result"] for one in status["history"]], ["Failed", "Succeeded", "Succeeded"])
        self.assertTrue(is_ready(stage.get("agents", "reviewer")))
        self.assertEqual(stage.note(), "one")
        # With the rights of a person who may read logs, and no others.
        said = stage.run_convoke("logs", "build/reviewer")
        self.assertRegex(said, r"(?m)^\[clone\] fetched ")
        self.assertRegex(said, rf"(?m)^\[build\] so-it-is https://bob:{PASSWORD}@", "the canary is really there")
        self.assertNotIn("fetched", stage.run_convoke("logs", "build/reviewer", "-c", "build"))

    def test_6_b5_a_missing_dockerfile_is_named_and_waits_for_a_commit(self):
        stage.push({f"{SOURCE}/Dockerfile": None})
        status = stage.eventually("the Dockerfile is missing", lambda: self.reason("DockerfileMissing"))
        self.assertEqual((status["failure"]["class"], status["failure"]["exitCode"]), ("Source", 22))
        self.assertEqual(len(stage.runs()), 4)
        # A revert takes the image of the history.
        stage.push({f"{SOURCE}/Dockerfile": DOCKERFILE})
        status = stage.eventually("it is Ready again", lambda: self.reason("Built"))
        self.assertTrue(status["builtImage"].endswith(self.digests["one"]), status)
        self.assertEqual(len(stage.runs()), 4)

    def reason(self, want):
        """The status, once this is the reason of Ready."""
        build = stage.get("agentbuilds", "reviewer")
        assert condition(build, "Ready")[1] == want, json.dumps(build.get("status"), indent=1)
        return build["status"]

    def test_7_b1_b8_a_rebuild_builds_once_more_and_makes_the_same_image(self):
        stage.convoke_as_admin("rebuild", "build/reviewer")

        def look():
            status = self.reason("Built")
            assert len(stage.runs()) == 5 and status.get("lastHandledRebuild"), status
            return status

        status = stage.eventually("it was built once more", look)
        self.assertEqual(status["attempt"], 1)
        # The same source, base image and Dockerfile make the same image, and no pod is replaced.
        self.assertTrue(status["builtImage"].endswith(self.digests["one"]), status)
        # Nothing else starts another one.
        stage.push({"../README.md": "Nothing of the image, again.\n"})
        self.assertEqual(len(stage.runs()), 5)

    def slow(self, note):
        """Pushes a source whose build takes long, and waits until it runs; gives the run's name."""
        commit = stage.push({f"{SOURCE}/Dockerfile": DOCKERFILE + "RUN sleep 600\n", f"{SOURCE}/note": f"{note}\n"})

        def look():
            status = stage.get("agentbuilds", "reviewer")["status"]
            assert status["phase"] == "Building" and status["lastAttemptedCommit"] == commit, status
            run = stage.get("pipelineruns", status["pipelineRun"])
            assert run["status"].get("childReferences"), run["status"]
            return status["pipelineRun"]

        return stage.eventually("the slow build runs", look)

    def pods_of(self, run):
        pods = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={run}")
        return [pod for pod in pods if pod.get("status", {}).get("phase") in ("Pending", "Running")]

    def no_pods_of(self, run):
        """Whether they are gone; otherwise says what they do."""
        left = [(pod["metadata"].get("deletionTimestamp"), pod["status"]) for pod in self.pods_of(run)]
        assert not left, json.dumps(left)
        return True

    def test_8_b8_a_build_is_cancelled_and_stays_so(self):
        run = self.slow("three")

        def runs():
            # A pod that Tekton is about to create when it hears of the end may be left behind.
            pods = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={run}")
            return pods and pods[0].get("status", {}).get("phase") == "Running"

        stage.eventually("its pod runs", runs)
        command, environment = stage.convoke("logs", "build/reviewer", "-f")
        with open(stage.state / "followed", "w+b") as out:
            following = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            try:
                said = lambda: re.search(r"(?ms)^\[clone\] fetched .*^\[build\] STEP \d/\d: RUN sleep", Path(out.name).read_text())
                stage.eventually("the log is followed from step to step", said)
                self.assertIsNone(following.poll(), "it goes on")
                stage.convoke_as_admin("cancel", "build/reviewer")
                following.wait(60)
            finally:
                following.kill()
        status = self.failed("it is cancelled")
        self.assertEqual((status["failure"]["class"], status["failure"]["reason"]), ("Cancelled", "Cancelled"))
        stage.eventually("its pod is gone", lambda: self.no_pods_of(run))
        self.assertEqual(status["history"][0]["result"], "Cancelled")
        # It may still be taking the image of the build before.
        stage.ready("agents", "reviewer")

    def test_90_b7_a_pod_or_a_run_that_somebody_deletes_is_no_failure_of_what_is_built(self):
        run = self.slow("deleted")
        stage.eventually("its pod builds", lambda: self.runs_step(run, "step-build"))
        # As when a node is drained.
        stage.kubectl("-n", NAMESPACE, "delete", "pod", "-l", f"tekton.dev/pipelineRun={run}", "--wait=false")
        status = stage.eventually("it is tried again", lambda: self.reason("Retrying"))
        failure = status["failure"]
        self.assertEqual((failure["class"], failure["reason"]), ("Infrastructure", "PodDeleted"), failure)
        self.assertNotIn("exitCode", failure)
        second = stage.eventually("the second try runs", lambda: self.other_run(run))
        stage.eventually("its pod builds", lambda: self.runs_step(second, "step-build"))
        stage.kubectl("-n", NAMESPACE, "delete", "pipelinerun", second, "--wait=false")
        third = stage.eventually("another one runs", lambda: self.other_run(run, second))
        # What is left of the second one is not taken for a part of it.
        stage.eventually("its pod builds", lambda: self.runs_step(third, "step-build"))
        status = self.reason("Building")
        self.assertEqual((status["pipelineRun"], status["attempt"]), (third, 3), status)
        stage.convoke_as_admin("cancel", "build/reviewer")
        status = self.failed("it is cancelled")
        self.assertEqual(status["failure"]["reason"], "Cancelled")
        stage.eventually("its pod is gone", lambda: self.no_pods_of(third))

    def runs_step(self, run, container):
        """Whether this step of the pod of a run has come to its long command."""
        (pod,) = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={run}")
        log = stage.kubectl("-n", NAMESPACE, "logs", pod["metadata"]["name"], "-c", container)
        assert "RUN sleep" in log, log
        return True

    def other_run(self, *others):
        """The run that the status tells, once it is none of these."""
        status = self.reason("Building")
        assert status["pipelineRun"] not in others, status
        return status["pipelineRun"]

    def test_92_b7_what_the_network_is_to_blame_for_is_tried_again(self):
        service = stage.get("services", "registry", OPERATOR)
        stage.api.delete("services", OPERATOR, "registry")
        try:
            commit = stage.push({f"{SOURCE}/Dockerfile": DOCKERFILE, f"{SOURCE}/note": "six\n"})
            status = stage.eventually("it is tried again", lambda: self.reason("Retrying"))
        finally:
            for key in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
                service["metadata"].pop(key, None)
            service.pop("status", None)
            stage.apply(service)
        failure = status["failure"]
        self.assertEqual((failure["class"], failure["reason"]), ("Infrastructure", "RegistryUnreachable"), failure)
        self.assertEqual((status["attempt"], status["phase"]), (1, "Pending"))
        stage.built(commit)
        status = stage.get("agentbuilds", "reviewer")["status"]
        self.assertGreater(status["attempt"], 1)
        self.assertNotIn("failure", status)

    def test_93_b1_the_operator_is_killed_while_it_builds(self):
        """And then the tag of its base image names another image."""
        build = json.loads((stage.state / "work/team/agentbuild.json").read_text())
        build["spec"] |= {"buildArgs": {"BASE": self.move_base()}, "trigger": {"baseImage": True}}
        commit = stage.push({"agentbuild.json": json.dumps(build, indent=1), f"{SOURCE}/note": "seven\n"})
        stage.eventually("it is built", lambda: self.builds(commit))
        before = len(stage.runs())
        stage.stop_operator()
        stage.eventually("the operator is back", stage.operator)
        stage.built(commit)
        # The history may have ended for an old one.
        self.assertLessEqual(len(stage.runs()), before)
        commits = [run["metadata"]["annotations"]["convoke.dev/commit"] for run in stage.runs()]
        self.assertEqual(commits.count(commit), 1, "one run a key")
        status = stage.get("agentbuilds", "reviewer")["status"]
        first = stage.images[stage.base].rpartition("@")[2]
        self.assertEqual(status["baseDigest"], first)

        base = self.move_base({"moved": "yes"})
        moved = oci.tagged(stage.registry(), base.partition("/")[2].rpartition(":")[0], "moving")
        self.assertNotEqual(moved, first)
        # An operator that starts asks at once. Others do in some minutes.
        stage.stop_operator()

        def look():
            status = stage.get("agentbuilds", "reviewer")["status"]
            assert (status["phase"], status.get("baseDigest")) == ("Succeeded", moved), json.dumps(status, indent=1)
            return status

        status = stage.eventually("it is built on the other image", look)
        self.assertEqual(status["baseImages"], [f"{base}@{moved}"])
        self.assertEqual(status["history"][0]["baseDigest"], moved)
        self.assertNotEqual(status["history"][0]["key"], status["history"][1]["key"])
        stage.built(commit)

    def move_base(self, annotations=None):
        """Lets the tag `moving` name the base image, perhaps with annotations; gives its name for pods."""
        registry = stage.registry()
        repository, _, digest = stage.images[stage.base].removeprefix(f"{registry}/").partition("@")
        request = urllib.request.Request(f"http://{registry}/v2/{repository}/manifests/{digest}", headers={"Accept": oci.MANIFEST})
        with urllib.request.urlopen(request, timeout=10) as reply:
            manifest = reply.read()
        if annotations:
            manifest = json.dumps(json.loads(manifest) | {"annotations": annotations}).encode()
        oci.upload(registry, repository, "moving", manifest, {})
        return f"{REGISTRY}/{repository}:moving"

    def builds(self, commit):
        """Whether a pod builds this commit."""
        status = stage.get("agentbuilds", "reviewer")["status"]
        assert status["phase"] == "Building" and status["lastAttemptedCommit"] == commit, json.dumps(status)
        return self.pods_of(status["pipelineRun"])

    def test_94_b9_old_runs_go_with_their_pods(self):
        build = json.loads((stage.state / "work/team/agentbuild.json").read_text())
        build["spec"]["history"] = {"successful": 1, "failed": 1}
        stage.push({"agentbuild.json": json.dumps(build, indent=1)})

        def look():
            runs = [run["metadata"]["name"] for run in stage.runs()]
            pods = stage.api.list("pods", NAMESPACE, "tekton.dev/pipelineRun")
            left = {pod["metadata"]["labels"]["tekton.dev/pipelineRun"] for pod in pods}
            assert len(runs) == 2 and left <= set(runs), (runs, left)
            return runs

        runs = stage.eventually("old runs are removed", look)
        status = stage.get("agentbuilds", "reviewer")["status"]
        self.assertIn(status["pipelineRun"], runs)
        self.assertEqual(sorted(one["pipelineRun"] for one in status["history"]), sorted(runs))
        stage.ready("agents", "reviewer")

    def test_96_a10_an_image_that_does_not_start_is_gone_back_from(self):
        agent = json.loads((stage.state / "work/team/agent.json").read_text())
        agent["spec"]["progressDeadline"] = "30s"
        stage.push({"agent.json": json.dumps(agent, indent=1)})
        stage.ready("agents", "reviewer")
        before = stage.get("agentbuilds", "reviewer")["status"]["builtImage"]
        broken = DOCKERFILE + 'ENTRYPOINT ["/bin/false"]\n'
        stage.push({f"{SOURCE}/Dockerfile": broken, f"{SOURCE}/note": "broken\n"})

        def back():
            agent = stage.get("agents", "reviewer")
            status, reason, message = condition(agent, "Ready")
            assert (status, reason) == ("False", "RolledBack"), json.dumps(agent.get("status"), indent=1)
            images = {pod["spec"]["containers"][0]["image"] for pod in stage.pods("agent", "reviewer")}
            assert images == {before}, images
            return message

        message = stage.eventually("it runs the image before", back)
        build = stage.get("agentbuilds", "reviewer")
        newest = build["status"]["builtImage"]
        self.assertNotEqual(newest, before)
        self.assertEqual(condition(build, "Ready")[0], "True")

        def told():
            status, _, named = condition(stage.get("agentbuilds", "reviewer"), "RolledBack")
            assert status == "True" and named.endswith(": agent/reviewer"), named
            return True

        stage.eventually("the build tells it, too", told)
        self.assertIn(newest, message)
        self.assertIn("CrashLoopBackOff", message)
        self.assertEqual(stage.note(), "seven", "the pod before was never stopped")
        commit = stage.push({f"{SOURCE}/Dockerfile": DOCKERFILE, f"{SOURCE}/note": "nine\n"})
        stage.built(commit)
        self.assertEqual(stage.note(), "nine")
        conditions = stage.get("agentbuilds", "reviewer")["status"]["conditions"]
        self.assertNotIn("RolledBack", [one["type"] for one in conditions])

    def configured(self):
        """The ConfigMap with which the agent's Deployment configures it, and its instructions."""
        pod = stage.get("deployments", "agent-reviewer")["spec"]["template"]["spec"]
        (name,) = {one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one}
        return name, "You are the reviewer." in json.dumps(stage.get("configmaps", name)["data"])

    def test_97_a10_a_configuration_that_does_not_work_is_gone_back_from(self):
        agent = json.loads((stage.state / "work/team/agent.json").read_text())
        agent["spec"]["progressDeadline"] = "30s"
        good, configured = json.dumps(agent, indent=1), self.configured()
        self.assertTrue(configured[1])
        agent["spec"]["env"].append({"name": "WEB_UNREADY", "value": "true"})
        agent["spec"]["config"]["instructions"] = "You are another one."
        stage.push({"agent.json": json.dumps(agent, indent=1)})

        def back():
            status, reason, message = condition(stage.get("agents", "reviewer"), "Ready")
            assert (status, reason) == ("False", "RolledBack"), message
            assert self.configured() == configured, self.configured()
            return message

        stage.eventually("it has gone back", back)
        (pod,) = stage.pods("agent", "reviewer")
        self.assertNotIn("WEB_UNREADY", json.dumps(pod["spec"]))
        stage.push({"agent.json": good})
        stage.ready("agents", "reviewer")


class WhatAnImageIsMadeOf(builds_commits.WhatAnImageIsMadeOf):
    """In the same cluster."""


class TheNewestCommitWins(builds_commits.TheNewestCommitWins):
    """In the same cluster."""


class KilledAtEachStage(builds_killed.KilledAtEachStage):
    """In the same cluster."""


class BuildsOfManyAgents(builds_many.BuildsOfManyAgents):
    """In the same cluster."""


class PrivatePlaces(builds_private.PrivatePlaces):
    """In the same cluster."""


class LayersOfABuild(builds_cache.LayersOfABuild):
    """In the same cluster."""


class PipelinesOfTheirOwn(builds_pipeline.APipelineOfItsOwn):
    """In the same cluster."""


class WithoutBaseline(builds_profiles.WithoutBaseline):
    """In the same cluster."""


class WithScans(builds_scans.WithScans):
    """In the same cluster."""


class WithoutADockerfile(unittest.TestCase):
    """`strategy: Append`, where Pod Security `restricted` is enforced. Needs nothing of the other tests."""

    def appended(self, commit):
        """Waits until the agent runs the image of a commit; gives the status of its build."""

        def look():
            status = stage.get("agentbuilds", "appended").get("status", {})
            assert status.get("phase") == "Succeeded", json.dumps(status, indent=1)
            assert status["lastBuiltCommit"] == commit, json.dumps(status, indent=1)
            assert is_ready(stage.get("agents", "appended"))
            (pod,) = stage.pods("agent", "appended")
            assert pod["spec"]["containers"][0]["image"] == status["builtImage"]
            assert condition(pod, "Ready")[0] == "True"
            return status, pod

        return stage.eventually(f"the agent runs the image of {commit}", look)

    def test_1_b11_a_folder_is_appended_where_restricted_is_enforced(self):
        # Without it, Tekton's own containers say nothing of their security.
        stage.api.merge("configmaps", TEKTON, "feature-flags", {"data": {"set-security-context": "true"}})
        stage.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
        digests = []
        for note in ("one", "two"):
            commit = stage.push(stage.appended_files(f"{note}\n"))
            status, pod = self.appended(commit)
            name, _, digest = status["builtImage"].partition("@")
            self.assertEqual(name, f"{REGISTRY}/{NAMESPACE}/appended")
            digests.append(digest)
            said = stage.kubectl("-n", NAMESPACE, "exec", pod["metadata"]["name"], "--", "cat", "/app/note")
            self.assertEqual(said.strip(), note)
            self.assertRegex(status["baseDigest"], "^sha256:[0-9a-f]{64}$")
            self.assertRegex(status["builtImage"], "@sha256:[0-9a-f]{64}$")
            self.assertEqual(status["history"][0]["baseDigest"], status["baseDigest"])
        self.assertNotEqual(*digests)
        (pod,) = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={status['pipelineRun']}")
        steps = [container["name"] for container in pod["spec"]["containers"]]
        self.assertEqual(steps, ["step-clone", "step-verify", "step-append"])
        # Nothing of the base image was sent.
        logs = stage.kubectl("-n", NAMESPACE, "logs", pod["metadata"]["name"], "-c", "step-append")
        self.assertRegex(logs, r"layers of the base image: \d+ there, \d+ mounted, 0 copied")

    def test_2_b5_a_pod_that_is_refused_names_the_choices(self):
        stage.push({f"{SOURCE}/note": "refused\n"})

        def refused():
            status = stage.get("agentbuilds", "reviewer").get("status", {})
            assert status.get("failure", {}).get("reason") == "PodRefused", json.dumps(status, indent=1)
            return status["message"]

        message = stage.eventually("the pod is refused", refused)
        self.assertIn("violates PodSecurity", message)
        self.assertIn("--build-namespace", message)
        self.assertIn("strategy: Append", message)


class WithoutADockerfileWithPackages(builds_packages.PackagesOfALockFile):
    """In the same cluster."""


if __name__ == "__main__":
    unittest.main()
