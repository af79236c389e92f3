"""Builds of many AgentBuilds, and what gets in their way: limits, quotas, rules of admission, a Tekton that stands still.

test_builds.py runs them in its cluster. They need nothing of its other tests. Standard library only.
"""

import base64
import json
import os
import re
import unittest
from urllib.parse import urlsplit

import agents_team as team
from agents_stage import OPERATOR, ROOT, condition, is_ready
from builds_stage import NAMESPACE, TEKTON, stage

# How many AgentBuilds of two namespaces come at once, and how many builds run at once.
FULL = bool(os.environ.get("CONVOKE_FULL"))
CROWD, CALM, LIMIT = (20, 10, 3) if FULL else (8, 4, 3)
CONTROLLER = "tekton-pipelines-controller"
# Where Dockerfiles are built.
BUILDS = "convoke-builds"
FOLDER = "../images/many"
# What the container of the step that builds has: more than a RUN sees in its chroot.
LOOKS = r"""
      { cat /proc/[0-9]*/environ
        find /workspace /tekton /run /var/run/ /root -type f -size -64k -exec cat {} +
      } 2>&1 | tr -cd '[:print:]\n' >"$HOME/found"
      mv "$HOME/found" "$context/found"
"""
# And what the API server says to a RUN, and to a pod of the image: by its name, and twice by its address.
ASKS = """FROM {base}
USER 0
COPY note found ask.py /
RUN python /ask.py >> /found 2>&1
"""
ASK = """import ssl, urllib.error, urllib.request
for host in "kubernetes.default.svc", "{node}:6443", "{node}:6443":
    url = f"https://{{host}}/api/v1/namespaces/convoke-builds/secrets"
    try:
        urllib.request.urlopen(url, timeout=5, context=ssl._create_unverified_context())
        print("the API server answers")
    except urllib.error.HTTPError as error:
        print("the API server says", error.code, error.read(500).decode())
    except OSError as error:
        print("the API server is not reached:", error)
print("looked")
"""
# It is in the source and not in the image.
PLANTED = "canary-that-was-planted"


def many(count):
    """The files of so many source folders."""
    return {f"{FOLDER}/a{number:02}/note": f"{number}\n" for number in range(count)}


def tools(name):
    """The source of a tool."""
    return f'def {name}() -> str:\n    """Tells its name."""\n    return "{name}"\n'


# Gives the tool server the tools that are in its image.
SERVE = "import os, sys, mcptools.server as s; os.environ['MCP_TOOLS_STRING'] = open('/app/tools.py').read(); sys.exit(s.main())"


class BuildsOfManyAgents(unittest.TestCase):
    """Two namespaces whose AgentBuilds name the repository themselves."""

    @classmethod
    def setUpClass(cls):
        # Tests of private repositories may have closed it.
        (stage.state / "remote.git.authorization").unlink(missing_ok=True)
        cls.url = stage.get("gitsyncs", NAMESPACE)["spec"]["url"]
        for name, level in (("crowd", "baseline"), ("calm", "baseline"), ("strict", "restricted")):
            meta = {"name": name, "labels": {"pod-security.kubernetes.io/enforce": level}}
            stage.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        for file in ("build-namespace.yaml", "build-network.yaml"):
            stage.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / file))
        stage.apply(cls.private_places())
        cls.limit([f"--max-builds={LIMIT}", f"--build-namespace={BUILDS}"])
        cls.commit = stage.commit(many(CROWD))

    @classmethod
    def tearDownClass(cls):
        cls.limit([])

    @classmethod
    def private_places(cls):
        """What build-network.yaml asks for: where Git and the registry are in this network."""
        registry, git = stage.registry(), urlsplit(cls.url).netloc
        rules = []
        for place in (registry, git):
            address, port = place.split(":")
            rules.append({"to": [{"ipBlock": {"cidr": f"{address}/32"}}], "ports": [{"port": int(port)}]})
        meta = {"name": "private-places", "namespace": BUILDS}
        spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": rules}
        return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}

    @classmethod
    def limit(cls, options):
        """Starts the operator with these limits and namespaces, in place of others."""
        deployment = stage.get("deployments", "convoke", OPERATOR)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        args = [arg for arg in container["args"] if not arg.startswith(("--max-builds", "--build-namespace"))] + options
        path = "/spec/template/spec/containers/0/args"
        stage.api.patch("deployments", OPERATOR, "convoke", {"op": "replace", "path": path, "value": args})
        stage.kubectl("-n", OPERATOR, "rollout", "status", "deployment/convoke", "--timeout=120s", seconds=120)

    def build(self, namespace, number, **more):
        """Applies an AgentBuild of the folder with this number; gives its name."""
        name = f"a{number:02}"
        source = {"git": {"url": self.url, "interval": "5s"}, "subfolder": f"images/many/{name}"}
        output = {"image": f"{namespace}/{name}", "insecure": True}
        spec = {"source": source, "output": output} | more
        if spec.get("strategy") != "Dockerfile":
            spec |= {"strategy": "Append", "append": {"baseImage": stage.in_cluster("agent")}}
        meta = {"name": name, "namespace": namespace}
        stage.apply({"apiVersion": "convoke.dev/v1alpha1", "kind": "AgentBuild", "metadata": meta, "spec": spec})
        return name

    def all_runs(self):
        """The PipelineRuns of both namespaces, the oldest first."""
        runs = [run for namespace in ("crowd", "calm") for run in stage.api.list("pipelineruns", namespace)]
        return sorted(runs, key=lambda run: run["metadata"]["creationTimestamp"])

    def until(self, namespace, name, reason, seconds=300):
        """Waits until this is the reason of Ready; gives the status."""

        def look():
            build = stage.get("agentbuilds", name, namespace)
            assert condition(build, "Ready")[1] == reason, json.dumps(build.get("status"), indent=1)
            return build["status"]

        return stage.eventually(f"{namespace}/{name} says {reason}", look, seconds)

    def test_1_b7_a_crowd_of_builds_does_not_keep_another_namespace_waiting(self):
        # Nothing begins before all of them wait.
        with stage.without(CONTROLLER, "app.kubernetes.io/component=controller", TEKTON):
            crowd = [self.build("crowd", number) for number in range(CROWD)]
            self.waiting("crowd", crowd, CROWD - LIMIT)
            calm = [self.build("calm", number) for number in range(CALM)]
            self.waiting("calm", calm, CALM)
        for namespace, names in (("calm", calm), ("crowd", crowd)):
            for name in names:
                status = self.until(namespace, name, "Built")
                self.assertEqual(status["lastBuiltCommit"], self.commit)
        runs = self.all_runs()
        self.assertEqual(len(runs), CROWD + CALM, "each was built once")
        # Never more than the limit ran. Times are whole seconds: what was created before one, and ended in it or later, ran when it began.
        spans = [(run["metadata"]["creationTimestamp"], run["status"]["completionTime"]) for run in runs]
        for second in {time for span in spans for time in span}:
            self.assertLessEqual(sum(begun < second <= ended for begun, ended in spans), LIMIT, spans)
        # The first turn is of the namespace that has none, and it keeps a turn as long as one of its builds waits.
        order = [(run["metadata"]["namespace"], *span) for run, span in zip(runs, spans, strict=True)]
        quiet = [(begun, ended) for namespace, begun, ended in order if namespace == "calm"]
        self.assertLessEqual(sum(namespace == "crowd" and begun < quiet[0][0] for namespace, begun, _ in order), LIMIT, order)
        for number, (begun, _) in enumerate(quiet[1:], 1):
            last = max(ended for _, ended in quiet[:number])
            between = sum(namespace == "crowd" and last < other < begun for namespace, other, _ in order)
            self.assertLess(between, LIMIT, order)

    def waiting(self, namespace, names, count):
        """Waits until at least so many of these builds wait for their turn."""

        def look():
            statuses = [stage.get("agentbuilds", name, namespace).get("status", {}) for name in names]
            assert sum("queuedAt" in one for one in statuses) >= count, json.dumps(statuses, indent=1)
            return True

        stage.eventually(f"{count} builds of {namespace} wait", look)

    def test_2_b1_a_commit_in_one_of_many_folders_builds_one_image(self):
        before = {run["metadata"]["name"] for run in self.all_runs()}
        commit = stage.commit({f"{FOLDER}/a{CROWD - 1:02}/note": "another\n"})

        def look():
            status = stage.get("agentbuilds", f"a{CROWD - 1:02}", "crowd")["status"]
            assert status["lastBuiltCommit"] == commit and status["phase"] == "Succeeded", json.dumps(status, indent=1)
            revisions = [one["status"]["observedRevision"] for one in stage.api.list("agentbuilds", "crowd")]
            assert all(commit in revision for revision in revisions), revisions
            return status

        status = stage.eventually("the image is built", look)
        made = {run["metadata"]["name"] for run in self.all_runs()} - before
        self.assertEqual(made, {status["pipelineRun"]})

    def test_3_b6_b7_b8_what_gets_in_the_way_is_told_and_heals(self):
        for obstacle in (self.a_quota, self.a_rule_of_admission, self.no_tekton):
            with self.subTest(obstacle.__doc__):
                obstacle()

    def a_quota(self):
        """A quota without room."""
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full", "namespace": "calm"}}
        stage.apply(quota | {"spec": {"hard": {"pods": "0"}}})
        stage.eventually("the quota counts", lambda: stage.get("resourcequotas", "full", "calm")["status"]["used"], 60)
        stage.commit({f"{FOLDER}/a50/note": "quota\n"})
        name = self.build("calm", 50)

        def told():
            status = stage.get("agentbuilds", name, "calm").get("status", {})
            assert "exceeded quota" in status.get("message", ""), json.dumps(status, indent=1)
            return status

        try:
            status = stage.eventually("the quota is named", told)
            self.assertNotEqual(status["phase"], "Succeeded")
        finally:
            stage.api.delete("resourcequotas", "calm", "full")
        self.until("calm", name, "Built")

    def a_rule_of_admission(self):
        """Admission refuses PipelineRuns."""
        group = "admissionregistration.k8s.io/v1"
        rules = [{"apiGroups": ["tekton.dev"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["pipelineruns"]}]
        refusal = {"expression": "false", "message": "no builds on Fridays"}
        meta = {"metadata": {"name": "no-builds"}}
        only = {"matchLabels": {"kubernetes.io/metadata.name": "calm"}}
        policy = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules}, "validations": [refusal]}
        binding = {"policyName": "no-builds", "validationActions": ["Deny"], "matchResources": {"namespaceSelector": only}}
        stage.apply(
            {"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "spec": policy} | meta,
            {"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding} | meta,
        )
        try:
            run = {"apiVersion": "tekton.dev/v1", "kind": "PipelineRun", "metadata": {"generateName": "x-"}}
            step = {"name": "s", "image": "i", "command": ["true"]}
            run["spec"] = {"pipelineSpec": {"tasks": [{"name": "t", "taskSpec": {"steps": [step]}}]}}

            def refused():
                try:
                    stage.api.create("pipelineruns", "calm", run, dry_run=True)
                except Exception as error:  # noqa: BLE001 (whatever it says)
                    assert "Fridays" in str(error), error
                    return True
                raise AssertionError("the policy does not count yet")

            stage.eventually("the policy counts", refused, 60)
            stage.commit({f"{FOLDER}/a51/note": "policy\n"})
            name = self.build("calm", 51)
            status = self.until("calm", name, "PipelineRunRefused")
            self.assertIn("no builds on Fridays", status["message"])
        finally:
            for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
                stage.kubectl("delete", kind, "no-builds")
        self.until("calm", name, "Built")

    def no_tekton(self):
        """Tekton's controller is away."""
        with stage.without(CONTROLLER, "app.kubernetes.io/component=controller", TEKTON):
            stage.commit({f"{FOLDER}/a52/note": "tekton\n"})
            name = self.build("calm", 52)

            def silent():
                build = stage.get("agentbuilds", name, "calm")
                assert condition(build, "BuilderAvailable")[1] == "TektonNotResponding", json.dumps(build.get("status"))
                return build["status"]

            status = stage.eventually("it is told", silent, 180)
            self.assertEqual(status["phase"], "Building")
            # The rest of Convoke works.
            commit = stage.push({"../README.md": "While Tekton stands still.\n"})
            self.assertTrue(is_ready(stage.get("gitsyncs", NAMESPACE)), commit)
        self.until("calm", name, "Built")
        build = stage.get("agentbuilds", name, "calm")
        self.assertEqual(condition(build, "BuilderAvailable")[:2], ("True", "TektonInstalled"))
        self.assertEqual(len(stage.api.list("pipelineruns", "calm", f"convoke.dev/name={name}")), 1)

    def test_4_b5_v55_a_dockerfile_that_looks_around_in_another_namespace_finds_no_credentials(self):
        # No namespace of a team has to admit its pod.
        token = "--from-literal=token=canary-of-the-repository"
        stage.kubectl("-n", "strict", "create", "secret", "generic", "of-git", token)
        stage.kubectl("-n", "strict", "annotate", "secret", "of-git", f"convoke.dev/repositories={self.url}")
        what = ["--verb=get", "--resource=secrets", "--resource-name=of-git"]
        stage.kubectl("-n", "strict", "create", "role", "of-git", *what)
        account = f"--serviceaccount={OPERATOR}:convoke"
        stage.kubectl("-n", "strict", "create", "rolebinding", "of-git", "--role=of-git", account)
        ask = ASK.format(node=stage.registry().split(":")[0])
        files = {"Dockerfile": ASKS.format(base=stage.in_cluster("agent")), "note": "hostile\n", "ask.py": ask, "planted": PLANTED}
        stage.apply(self.looking())
        stage.commit({f"{FOLDER}/a53/{name}": text for name, text in files.items()})
        # Nobody gets it without them.
        user = base64.b64encode(b"x-access-token:canary-of-the-repository").decode()
        closed = stage.state / "remote.git.authorization"
        self.addCleanup(closed.unlink)
        closed.write_text(f"Basic {user}")
        source = {"git": {"url": self.url, "interval": "5s", "secretRef": {"name": "of-git"}}, "subfolder": "images/many/a53"}
        name = self.build("strict", 53, strategy="Dockerfile", source=source)
        status = self.until("strict", name, "Built")
        self.assertEqual(status["buildNamespace"], BUILDS)
        self.assertEqual(stage.api.list("pods", "strict"), [])
        command, environment = stage.convoke("logs", f"build/{name}")
        command[command.index(NAMESPACE)] = "strict"
        said = stage.printed(command, environment | {"KUBECONFIG": str(stage.state / "kubeconfig")})
        self.assertRegex(said, r"(?m)^\[build\] STEP 1")
        # The credentials were there, in the step that clones.
        (pod,) = stage.api.list("pods", BUILDS, f"tekton.dev/pipelineRun={status['pipelineRun']}")
        (volume,) = [one["name"] for one in pod["spec"]["volumes"] if "secret" in one]
        having = [one["name"] for one in pod["spec"]["containers"] if volume in json.dumps(one.get("volumeMounts"))]
        self.assertEqual(having, ["step-clone"])
        self.assertNotIn("kube-api-access", json.dumps(pod))
        # The same question from where no NetworkPolicy is.
        command = ["sh", "-c", "cat /found; echo outside; python /ask.py"]
        container = {"name": "found", "image": status["builtImage"], "command": command, "resources": team.LITTLE}
        looked = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "found", "namespace": "calm"}}
        stage.apply(looked | {"spec": {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}})
        over = lambda: stage.get("pods", "found", "calm")["status"].get("phase") == "Succeeded"  # noqa: E731
        stage.eventually("what it found is printed", over, 120)
        found, separator, outside = stage.kubectl("-n", "calm", "logs", "found").partition("\noutside\n")
        self.assertTrue(separator and found.endswith("looked") and outside.rstrip().endswith("looked"), (found[-300:], outside))
        # It saw the files of its container, so it would have seen what is there.
        self.assertIn(PLANTED, found)
        for canary in ("canary-of-the-repository", user, "eyJhbGciOi", "kubernetes.io/serviceaccount/token"):
            self.assertNotIn(canary, found)
        # And nobody is told them.
        told = stage.objects("-n", BUILDS) + stage.objects("-n", "strict")
        self.assertIn(pod["metadata"]["uid"], told)
        for canary in ("canary-of-the-repository", user):
            self.assertNotIn(canary, said + told)
        # The API server is not reached: by its name, and by its address. Without the policy it is, and whoever asks is nobody.
        self.assertEqual(found.count("the API server is not reached: <urlopen error timed out>\n"), 3, found[-600:])
        self.assertNotRegex(found, "the API server says [0-9]")
        self.assertEqual(len(re.findall("the API server says (?:403 .*system:anonymous|401 )", outside)), 3, outside)
        # It goes with all that it had there, the copy of its credentials first.
        self.assertEqual(len(self.left_there()), 4)
        stage.kubectl("-n", "strict", "delete", "agentbuild", name, "--timeout=120s", seconds=130)
        self.assertEqual(self.left_there(), [])

    def looking(self):
        """The shipped step that builds, as one of the namespace `strict` that looks around first."""
        name, begin = "convoke-step-build", "context=$SOURCE_DIR/repository/$SUBFOLDER\n"
        data = stage.get("configmaps", name, OPERATOR)["data"]
        before, found, after = data["task-spec.yaml"].partition(begin)
        self.assertTrue(found)
        meta = {"name": name, "namespace": "strict", "labels": {"convoke.dev/step": "true"}}
        spec = {"task-spec.yaml": f"{before}{found}{LOOKS}{after}"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": spec}

    def left_there(self):
        """What of builds is in the namespace where Dockerfiles are built."""
        kinds = ("pipelineruns", "taskruns", "pods", "secrets")
        return [f"{kind}/{one['metadata']['name']}" for kind in kinds for one in stage.api.list(kind, BUILDS)]

    def test_5_t1_a_tool_server_runs_the_digest_of_its_build(self):
        source = {"gitSync": {}, "subfolder": "images/tools"}
        output = {"image": f"{NAMESPACE}/tools", "insecure": True}
        append = {"baseImage": stage.in_cluster("agent"), "command": ["python", "-c", SERVE]}
        build = {"strategy": "Append", "append": append, "source": source, "output": output}
        head = {"apiVersion": "convoke.dev/v1alpha1", "metadata": {"name": "tools"}}
        server = {"buildRef": "tools", "resources": team.LITTLE}
        files = {
            "tools-build.json": json.dumps(head | {"kind": "AgentBuild", "spec": build}),
            "tools-server.json": json.dumps(head | {"kind": "MCPServer", "spec": server}),
        }
        digests = []
        for tool in ("first", "second"):
            commit = stage.push(files | {"../images/tools/tools.py": tools(tool)})

            def served(commit=commit, tool=tool):
                status = stage.get("agentbuilds", "tools").get("status", {})
                assert status.get("lastBuiltCommit") == commit, json.dumps(status, indent=1)
                found = stage.get("mcpservers", "tools")
                assert is_ready(found), json.dumps(found.get("status"), indent=1)
                (pod,) = stage.pods("mcpserver", "tools")
                assert pod["spec"]["containers"][0]["image"] == status["builtImage"]
                assert [one["name"] for one in found["status"]["tools"]] == [tool], found["status"]
                return status["builtImage"]

            digests.append(stage.eventually(f"the tool server has the tool {tool}", served))
        self.assertNotEqual(*digests)
        for image in digests:
            self.assertRegex(image, "@sha256:[0-9a-f]{64}$")
