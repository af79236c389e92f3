"""A private repository and a private registry. Whatever they ask for is where it is needed, and nowhere else.

test_builds.py runs these tests in its cluster. They need nothing of its other tests. Standard library only.
"""

import base64
import json
import ssl
import unittest
import urllib.request

from agents_stage import OPERATOR
from builds_stage import IMAGE, NAMESPACE, PASSWORD, SOURCE, TEKTON, stage


class PrivatePlaces(unittest.TestCase):
    """The repository stays private for the second test."""

    def give(self, name, role, *what):
        """Lets the operator do what a Role says."""
        stage.kubectl("-n", NAMESPACE, "create", "role", name, "--verb=get", "--resource=secrets", *what)
        account = f"--serviceaccount={OPERATOR}:convoke"
        stage.kubectl("-n", NAMESPACE, "create", "rolebinding", name, f"--role={role}", account)

    def shown(self, run):
        """All that people may see of builds: every object but Secrets, and the logs of a run, of the operator and of Tekton."""
        of_all = stage.kubectl("api-resources", "--namespaced=false", "--verbs=list", "-o", "name").split()
        shown = [stage.objects("--all-namespaces"), stage.kubectl("get", ",".join(of_all), "-o", "json", seconds=120)]
        pods = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={run}")
        pods += [pod for namespace in (OPERATOR, TEKTON) for pod in stage.api.list("pods", namespace)]
        for pod in pods:
            meta = pod["metadata"]
            shown.append(stage.kubectl("-n", meta["namespace"], "logs", meta["name"], "--all-containers"))
        return shown

    def nothing_shows(self, run, canaries):
        """Looks for canaries in everything but Secrets. It would find them: it finds those that are planted."""
        data = "--from-literal=planted=canary-that-was-planted"
        stage.kubectl("-n", NAMESPACE, "create", "configmap", "planted", data)
        shown = self.shown(run)
        stage.kubectl("-n", NAMESPACE, "delete", "configmap", "planted")
        # In objects, in the log of the run, and in those of the operator and of Tekton's controller.
        for planted in ("canary-that-was-planted", "fetched ", "operator started", "Starting "):
            self.assertTrue([text for text in shown if planted in text], planted)
        for canary in canaries:
            self.assertFalse([text for text in shown if canary in text], canary)

    def test_1_b5_a_private_repository_is_cloned_with_the_credentials_of_the_git_sync(self):
        user = base64.b64encode(b"x-access-token:canary-of-git").decode()
        (stage.state / "remote.git.authorization").write_text(f"Basic {user}")
        url = stage.get("gitsyncs", NAMESPACE)["spec"]["url"]
        secret = f"{NAMESPACE}-git"
        stage.kubectl("-n", NAMESPACE, "create", "secret", "generic", secret, "--from-literal=token=canary-of-git")
        origin = f"convoke.dev/git-origins={url.removesuffix('/remote.git')}"
        stage.kubectl("-n", NAMESPACE, "annotate", "secret", secret, origin)
        stage.api.merge("gitsyncs", NAMESPACE, NAMESPACE, {"spec": {"secretRef": {"name": secret}}})
        commit = stage.push({f"{SOURCE}/note": "ten\n"})
        stage.built(commit)
        self.assertEqual(stage.note(), "ten")
        run = stage.get("agentbuilds", "reviewer")["status"]["pipelineRun"]
        self.nothing_shows(run, ["canary-of-git", user])
        # It was mounted in the step that clones, and in no other.
        (pod,) = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={run}")
        (volume,) = [one["name"] for one in pod["spec"]["volumes"] if "secret" in one]
        containers = pod["spec"]["containers"] + pod["spec"]["initContainers"]
        having = [one["name"] for one in containers if volume in json.dumps(one.get("volumeMounts"))]
        self.assertEqual(having, ["step-clone"])
        trace = stage.run_convoke("trace", "agent/reviewer")
        self.assertRegex(trace, rf"(?m)^commit {commit[:7]} runs: ")
        digest = stage.get("agentbuilds", "reviewer")["status"]["builtImage"].rpartition("@")[2][:19]
        for stage_and_state in (
            rf"GitSync +{NAMESPACE} +{commit[:7]} +Ready ",
            r"Agent +reviewer +\w{7} +Ready .*team/agent.json:",
            rf"AgentBuild +reviewer +{commit[:7]} +Succeeded .*PipelineRun {run} succeeded",
            rf"image +\S+/{IMAGE} +{commit[:7]} .*{digest}",
            rf"Deployment +agent-reviewer +- +1/1 available +{digest}",
            rf"pod +agent-reviewer-\S+ +- +ready +{digest}",
        ):
            self.assertRegex(trace, f"(?m)^{stage_and_state}")

    def test_2_b5_a_registry_that_asks_for_a_password_gets_it_from_the_step_that_pushes(self):
        """Over TLS, with an authority of its own."""
        registry, authority = stage.private_registry()
        source = {"gitSync": {}, "subfolder": "images/pushed"}
        output = {"registry": registry, "image": f"{NAMESPACE}/denied", "secretRef": {"name": "authority"}}
        build = {"kind": "AgentBuild", "metadata": {"name": "pushed"}, "spec": {"source": source, "output": output}}
        build["apiVersion"] = "convoke.dev/v1alpha1"
        of_authority = f"--from-file=ca.crt={authority}"
        literals = ["--from-literal=username=pusher", f"--from-literal=password={PASSWORD}"]
        for name, content in (("authority", [of_authority]), ("registry", [of_authority, *literals])):
            stage.kubectl("-n", NAMESPACE, "create", "secret", "generic", name, *content)
            allowed = f"convoke.dev/registries={registry}/{NAMESPACE}"
            stage.kubectl("-n", NAMESPACE, "annotate", "secret", name, allowed)
            self.give(f"convoke-registry-{name}", f"convoke-registry-{name}", f"--resource-name={name}")
        files = {"../images/pushed/Dockerfile": "FROM scratch\nCOPY note /note\n", "../images/pushed/note": "pushed\n"}
        stage.push(files | {"pushed.json": json.dumps(build)})

        def refused():
            status = stage.get("agentbuilds", "pushed").get("status", {})
            assert status.get("phase") == "Failed", json.dumps(status, indent=1)
            return status["failure"]

        failure = stage.eventually("the push is refused", refused)
        self.assertEqual((failure["class"], failure["reason"], failure["step"]), ("Registry", "PushDenied", "push"))
        output |= {"image": f"{NAMESPACE}/pushed", "secretRef": {"name": "registry"}}
        stage.push({"pushed.json": json.dumps(build)})
        status = self.pushed()
        name, _, digest = status["builtImage"].partition("@")
        self.assertEqual(name, f"{registry}/{NAMESPACE}/pushed")
        user = base64.b64encode(f"pusher:{PASSWORD}".encode()).decode()
        path = f"https://{registry}/v2/{NAMESPACE}/pushed/manifests/{digest}"
        accept = {"Accept": "application/vnd.oci.image.manifest.v1+json", "Authorization": f"Basic {user}"}
        trust = ssl.create_default_context(cafile=authority)
        with urllib.request.urlopen(urllib.request.Request(path, headers=accept), timeout=20, context=trust) as reply:
            self.assertEqual(reply.status, 200)
        self.nothing_shows(status["pipelineRun"], [PASSWORD, user])
        self.assertEqual(self.having(status["pipelineRun"]), {"git": ["step-clone"], "push": ["step-push"]})
        # It is found again there, by the operator.
        before = stage.get("agentbuilds", "pushed")["metadata"]["uid"]
        stage.kubectl("-n", NAMESPACE, "delete", "agentbuild", "pushed", "--cascade=foreground")
        found = self.pushed(before)
        self.assertEqual(found["builtImage"], status["builtImage"])
        self.assertNotIn("pipelineRun", found)
        # And is a base image there.
        build["spec"] |= {"strategy": "Append", "append": {"baseImage": f"{registry}/{NAMESPACE}/pushed@{digest}"}}
        output["image"] = f"{NAMESPACE}/pushed-on"
        stage.push({"pushed.json": json.dumps(build)})
        status = self.pushed(image=f"{registry}/{NAMESPACE}/pushed-on")
        self.assertEqual(status["baseDigest"], digest)
        self.assertEqual(self.having(status["pipelineRun"]), {"git": ["step-clone"], "push": ["step-append"]})
        self.nothing_shows(status["pipelineRun"], [PASSWORD, user])

    def pushed(self, before="", image=""):
        """Waits until the build `pushed` has an image of this name, and is another object than before; gives its status."""

        def look():
            found = stage.get("agentbuilds", "pushed")
            assert found and found["metadata"]["uid"] != before, "it was not made anew yet"
            status = found.get("status", {})
            assert status.get("phase") == "Succeeded", json.dumps(status, indent=1)
            assert status["builtImage"].startswith(image), json.dumps(status, indent=1)
            return status

        return stage.eventually("it is pushed", look)

    def having(self, run):
        """Which steps of a run have which of its Secrets."""
        (pod,) = stage.api.list("pods", NAMESPACE, f"tekton.dev/pipelineRun={run}")
        secrets = {one["secret"]["secretName"]: one["name"] for one in pod["spec"]["volumes"] if "secret" in one}
        return {
            secret.rpartition("-")[0].rpartition("-")[2]: [
                one["name"] for one in pod["spec"]["containers"] if volume in json.dumps(one.get("volumeMounts"))
            ]
            for secret, volume in secrets.items()
        }
