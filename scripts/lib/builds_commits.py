"""Which commit and which folder an image is made of, whose AgentBuild counts, and what templates of a team build.

test_builds.py runs these tests in its cluster. They need nothing of its other tests. Standard library only.
"""

import json
import unittest

import oci
from agents_stage import OPERATOR, condition
from builds_stage import NAMESPACE, stage
from test_tekton import REGISTRY

# There is nothing to compress and nothing to run: such an image is built in a moment.
SMALL = "FROM scratch\nCOPY note /note\n"
SLOW = "FROM {base}\nCOPY note /note\nRUN sleep {seconds}\n"


def build(name, **spec):
    """An AgentBuild of the folder images/NAME, as the text of its file."""
    default = {
        "source": {"gitSync": {}, "subfolder": f"images/{name}"},
        "output": {"image": f"{NAMESPACE}/{name}", "insecure": True},
    }
    head = {"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "metadata": {"name": name}}
    return json.dumps(head | {"spec": default | spec})


def source(name, note, dockerfile=SMALL):
    """The files of that folder."""
    return {f"../images/{name}/Dockerfile": dockerfile, f"../images/{name}/note": f"{note}\n"}


def runs(name):
    """The PipelineRuns of a build, the oldest first."""
    found = stage.api.list("pipelineruns", NAMESPACE, f"convoke.dev/name={name}")
    return sorted(found, key=lambda run: run["metadata"]["creationTimestamp"])


def until(name, reason):
    """Waits until this is the reason of Ready; gives the status."""

    def look():
        found = stage.get("agentbuilds", name) or {}
        assert condition(found, "Ready")[1] == reason, json.dumps(found.get("status"), indent=1)
        return found["status"]

    return stage.eventually(f"{name} says {reason}", look)


def built(name, commit):
    """Waits until there is an image of a commit; gives the status."""

    def look():
        status = status_of(name)
        assert (status.get("phase"), status.get("lastBuiltCommit")) == ("Succeeded", commit), json.dumps(status, indent=1)
        return status

    return stage.eventually(f"{name} is built of {commit}", look)


def status_of(name):
    """The status; raises KeyError while there is no such build."""
    return (stage.get("agentbuilds", name) or {"status": {}})["status"]


class WhatAnImageIsMadeOf(unittest.TestCase):
    # A shell would do something with it.
    WORD = "it's \"$HOME\" `id`; exit 9 #"

    def test_1_b1_b5_a_missing_folder_is_named_and_other_paths_count(self):
        paths = {"trigger": {"paths": ["images/shared", "images/later.txt"]}}
        stage.push({"plain.json": build("plain", **paths)})
        status = until("plain", "SubfolderMissing")
        self.assertEqual(status["phase"], "Failed", status)
        self.assertIn("no folder images/plain", status["message"])
        self.assertEqual(runs("plain"), [])
        first = stage.push(source("plain", "plain"))
        status = built("plain", first)
        (record,) = status["history"]
        self.assertEqual(record["tree"], stage.git("rev-parse", f"{first}:images/plain"))
        # Of the same folder: a file beside it, and one that was not there before.
        for number, path in enumerate(("../images/shared/words", "../images/later.txt"), 2):
            commit = stage.push({path: "They count.\n"})
            status = built("plain", commit)
            self.assertEqual(len(runs("plain")), number)
            self.assertEqual(status["history"][0]["tree"], record["tree"])
        stage.push({"../images/beside.txt": "It does not.\n"})
        commit = stage.push(source("plain", "plainer"))
        self.assertEqual(built("plain", commit)["lastBuiltCommit"], commit)
        commits = [run["metadata"]["annotations"]["convoke.dev/commit"] for run in runs("plain")]
        self.assertEqual((len(commits), commits[-1]), (4, commit), "nothing was built of the file that does not count")

    def test_2_b4_what_tekton_would_replace_is_no_value(self):
        """It is refused in Git, with its place, before anything is built."""
        name = "replaced"
        values = [{"name": "build-args", "values": ["WORD=$(params.revision)"]}]
        stage.commit({f"{name}.json": build(name, pipeline={"parameters": values})} | source(name, "x"))
        # Otherwise no other test could push. Another text than below: a commit without a change is none.
        self.addCleanup(stage.commit, {f"{name}.json": build(name) + "\n"})

        def told():
            status = stage.get("gitsyncs", NAMESPACE)["status"]
            (problem,) = [one for one in status.get("problems", []) if one.get("path", "").endswith(f"{name}.json")]
            return problem

        problem = stage.eventually("it is refused", told)
        self.assertIn("$(", json.dumps(problem))
        self.assertGreater(problem["line"], 0, problem)
        self.assertIsNone(stage.get("agentbuilds", name))
        # `buildArgs` are refused when the run is rendered.
        from_folder = {"source": {"gitSync": {}, "subfolder": f"images/{name}"}}
        values = {f"{name}-by-tekton": "$(params.revision)", f"{name}-by-kubernetes": "$$"}
        builds = {f"{one}.json": build(one, buildArgs={"WORD": value}, **from_folder) for one, value in values.items()}
        commit = stage.push(builds | {f"{name}.json": build(name)})
        for one in values:
            self.assertIn("build-args", until(one, "UnsafeValue")["message"])
            self.assertEqual(runs(one), [])
        built(name, commit)

    def template(self, name, *steps, **more):
        """A template of the team: the shipped one with these steps of its own."""
        shipped = json.loads(stage.get("configmaps", "pipeline-template-dev", OPERATOR)["data"]["template.json"])
        text = json.dumps(shipped | {"name": name, "steps": [{"name": one, "configMap": map} for one, map in steps]} | more)
        self.config_map(f"pipeline-template-{name}", {"template.json": text})

    def config_map(self, name, data):
        meta = {"name": name, "namespace": NAMESPACE, "labels": {"convoke.dev/step": "true"}}
        stage.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})

    def test_3_b3_a_template_of_the_team_builds_with_steps_of_its_own(self):
        says = {"name": "say", "image": stage.in_cluster(stage.base), "script": "#!/bin/sh\necho \"so says $WORD\"\n"}
        says["env"] = [{"name": "WORD", "value": "$(params.word)"}]
        spec = {"params": [{"name": "word", "type": "string", "default": "nobody"}], "steps": [says]}
        self.config_map("say", {"task-spec.yaml": json.dumps(spec)})
        shipped = [(name, f"convoke-step-{name}") for name in ("clone", "build", "push")]
        self.template("talking", ("say", "say"), *shipped)
        parameters = {"parameters": [{"name": "word", "value": self.WORD}]}
        commit = stage.push({"talking.json": build("talking", mode="talking", pipeline=parameters)} | source("talking", "one"))
        status = built("talking", commit)
        self.assertEqual([step["name"] for step in status["steps"]], ["say", "clone", "build", "push"])
        said = stage.convoke_as_admin("logs", "build/talking", "-c", "say")
        self.assertIn(f"so says {self.WORD}", said)

    def test_4_b6_a_run_that_succeeds_without_a_digest_has_failed(self):
        silent = {"name": "be-silent", "image": stage.in_cluster(stage.base), "script": "#!/bin/sh\n: >\"$RESULT\"\n"}
        silent["env"] = [{"name": "RESULT", "value": "$(results.digest.path)"}]
        args = {"name": "build-args", "type": "array"}
        spec = {"params": [args], "results": [{"name": "digest"}], "steps": [silent]}
        self.config_map("silent", {"task-spec.yaml": json.dumps(spec)})
        self.template("silent", ("silent", "silent"), globalParameters=[], requiredParameters=[])
        stage.push({"silent.json": build("silent", mode="silent")} | source("silent", "one"))

        def failed():
            status = status_of("silent")
            assert status.get("phase") == "Failed" and "failure" in status, json.dumps(status, indent=1)
            return status

        status = stage.eventually("it has failed", failed)
        self.assertEqual(status["failure"]["reason"], "DigestMissing", json.dumps(status, indent=1))
        self.assertNotIn("builtImage", status)

    def test_5_b3_dev_external_wants_a_registry_that_the_build_names(self):
        stage.name_images("dev-external")
        stage.push({"external.json": build("external", mode="dev-external")} | source("external", "one"))
        status = until("external", "MissingParameter")
        self.assertIn("spec.output.registry", status["message"])
        output = {"registry": REGISTRY, "image": f"{NAMESPACE}/external", "insecure": True}
        commit = stage.push({"external.json": build("external", mode="dev-external", output=output)})
        image = built("external", commit)["builtImage"]
        self.assertRegex(image, f"^{REGISTRY}/{NAMESPACE}/external@sha256:[0-9a-f]{{64}}$")

    def test_6_b1_of_two_git_syncs_that_want_one_build_the_owner_has_it(self):
        commit = stage.push({"shared.json": build("shared")} | source("shared", "one"))
        image = built("shared", commit)["builtImage"]
        stolen = {"image": f"{NAMESPACE}/stolen", "insecure": True}
        stage.push({"../other/shared.json": build("shared", output=stolen)})
        ours = stage.get("gitsyncs", NAMESPACE)
        spec = ours["spec"] | {"path": "./other"}
        head = {"apiVersion": ours["apiVersion"], "kind": "GitSync"}
        stage.apply(head | {"metadata": {"name": "other", "namespace": NAMESPACE}, "spec": spec})
        self.addCleanup(stage.api.delete, "gitsyncs", NAMESPACE, "other")

        def told():
            status = stage.get("gitsyncs", "other").get("status", {})
            (problem,) = [one for one in status.get("problems", []) if one["code"] == "CVK0901"]
            return problem

        problem = stage.eventually("it is told", told)
        self.assertIn(f"GitSync {NAMESPACE}/{NAMESPACE}", problem["message"])
        commit = stage.push(source("shared", "two"))
        status = built("shared", commit)
        self.assertNotEqual(status["builtImage"], image)
        images = {run["metadata"]["annotations"]["convoke.dev/image"] for run in runs("shared")}
        self.assertEqual((images, len(runs("shared"))), ({f"{REGISTRY}/{NAMESPACE}/shared"}, 2))

    def test_7_b1_a_build_that_is_made_anew_takes_the_image_that_it_has_made_before(self):
        stage.push({"anew.json": build("anew")} | source("anew", "anew"))

        def succeeded(before=None):
            found = stage.get("agentbuilds", "anew")
            assert found and found["metadata"]["uid"] != before, "it was not made anew yet"
            assert found.get("status", {}).get("phase") == "Succeeded", json.dumps(found.get("status"), indent=1)
            return found

        first = stage.eventually("it is built", succeeded)
        self.assertIn("pipelineRun", first["status"])
        self.assertNotIn("baseDigest", first["status"], "it is built from scratch")
        stage.kubectl("-n", NAMESPACE, "delete", "agentbuild", "anew", "--cascade=foreground")
        second = stage.eventually("it is found", lambda: succeeded(first["metadata"]["uid"]))
        status = second["status"]
        self.assertEqual(status["builtImage"], first["status"]["builtImage"])
        self.assertEqual(status["buildKey"], first["status"]["buildKey"])
        self.assertNotIn("pipelineRun", status)
        self.assertRegex(status["message"], "^found ")
        self.assertEqual(runs("anew"), [])


class TheNewestCommitWins(unittest.TestCase):
    """One AgentBuild whose tag is the same for all commits."""

    NAME = "newest"

    def push(self, note, seconds):
        """Pushes a source whose build takes so long."""
        dockerfile = SLOW.format(base=stage.in_cluster(stage.base), seconds=seconds) if seconds else SMALL
        return stage.push(source(self.NAME, note, dockerfile))

    def building(self, commit):
        """Waits until the long command of the build of a commit runs; gives the run's name."""

        def look():
            name = self.run_of(commit)
            (pod,) = self.pods(name)
            log = stage.kubectl("-n", NAMESPACE, "logs", pod["metadata"]["name"], "-c", "step-build")
            assert "RUN sleep" in log, log
            return name

        return stage.eventually("it is being built", look)

    def begun(self, commit):
        """Waits until Tekton makes a pod for the build of a commit; gives the run's name."""

        def look():
            name = self.run_of(commit)
            status = stage.get("pipelineruns", name)["status"]
            assert status.get("childReferences"), status
            return name

        return stage.eventually("it begins", look)

    def run_of(self, commit):
        """The name of the run that the status tells, if it is the one of a commit."""
        status = status_of(self.NAME)
        assert (status["phase"], status["lastAttemptedCommit"]) == ("Building", commit), json.dumps(status, indent=1)
        return status["pipelineRun"]

    def pods(self, run):
        return stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={run}")

    def tagged(self):
        return oci.tagged(stage.registry(), f"{NAMESPACE}/{self.NAME}", "latest")

    def test_b7_an_old_build_is_stopped_once_and_never_has_the_tag_of_a_newer_one(self):
        output = {"image": f"{NAMESPACE}/{self.NAME}", "insecure": True, "tag": "latest"}
        stage.push({"newest.json": build(self.NAME, output=output)})
        # Without a history, a build is young for a minute.
        first = self.begun(self.push("one", 600))
        second_commit = self.push("two", 20)
        second = self.building(second_commit)
        # The pod that could push the tag has ended by then.
        ended = [pod["status"]["phase"] for pod in self.pods(first)]
        self.assertLessEqual(set(ended), {"Failed", "Succeeded"})
        # The second one in a row is not stopped: its image is there for a moment at least.
        third_commit = self.push("three", 0)
        status = built(self.NAME, third_commit)
        ends = [(one["pipelineRun"], one["result"]) for one in status["history"]]
        self.assertEqual(ends[1:], [(second, "Succeeded"), (first, "Superseded")], status["history"])
        third = status["builtImage"].partition("@")[2]
        self.assertEqual(self.tagged(), third)
        record = status["history"][2]
        self.assertEqual(record["supersededBy"]["commit"], second_commit, record)
        # A revert takes the image that is there, and the tag follows.
        commit = self.push("two", 20)
        status = stage.eventually("the tag follows", lambda: self.follows(status["history"][1]["image"]))
        self.assertEqual(len(runs(self.NAME)), 3, commit)
        self.assertEqual(status["phase"], "Succeeded")

    def follows(self, image):
        status = status_of(self.NAME)
        assert status["builtImage"] == image, json.dumps(status, indent=1)
        self.assertEqual(self.tagged(), image.partition("@")[2])
        return status
