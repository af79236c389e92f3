"""Tests of `scripts/quickstart --pods`: Convoke in a pod, installed as users install it, with agents that run as pods. First without
Tekton, as on a machine that has never compiled it, then with it: an image is built, and its agent runs it.

Run by scripts/test. Needs root.
"""

import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from test_node import CLUSTER, POD_SECONDS, Cluster, run_script

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "scripts/quickstart"
# Images may have to be built.
UP_SECONDS = 1500
BUILD_SECONDS = 180


class QuickstartWithPods(unittest.TestCase):
    """One quick start for all of these."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.state = cls.cluster.state
        # Whatever is left of the quick start, the cluster itself is removed.
        cls.addClassCleanup(cls.cluster.remove)
        cls.addClassCleanup(cls.quickstart, "--down")
        for what in ("--node", "--tekton"):
            run_script(CLUSTER, "tools", what, state=cls.state, seconds=UP_SECONDS)
        cache = cache_without_tekton()
        # The cluster's programs are links to there until the second start.
        cls.addClassCleanup(cache.cleanup)
        without = ("env", f"XDG_CACHE_HOME={cache.name}")
        cls.shown_without_tekton = cls.quickstart("--pods", "--detach", under=without)
        cls.waiting = cls.cluster.kubectl("get", "agent/reviewer", "-n", "agents", "-o", "jsonpath={.status.phase}")
        builder = '{.status.conditions[?(@.type=="BuilderAvailable")].reason}'
        cls.builder = cls.cluster.kubectl("get", "agentbuild/reviewer", "-n", "agents", "-o", f"jsonpath={builder}")
        cls.shown = cls.quickstart("--pods", "--detach")
        cls.kubectl, cls.eventually = cls.cluster.kubectl, cls.cluster.eventually

    @classmethod
    def quickstart(cls, *arguments, under=()):
        """Runs it; gives what it prints."""
        return run_script(QUICKSTART, *arguments, state=cls.state, seconds=UP_SECONDS, under=under)[0]

    def get(self, *arguments):
        """One object or a list, as kubectl gets it."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def operator(self):
        """The operator's pod, once there is exactly one that is ready."""
        pods = self.get("pods", "-n", "convoke-system", "-l", "app.kubernetes.io/name=convoke")["items"]
        ready = [
            pod
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"]
            and any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
        ]
        return ready[0] if len(pods) == len(ready) == 1 else None

    def push(self, path, text):
        """Appends to a file of the working copy, commits and pushes; gives the commit."""
        work = self.state / "work"
        with open(work / path, "a") as file:
            file.write(text)
        for arguments in (["commit", "--quiet", "-am", f"change {path}"], ["push", "--quiet"]):
            subprocess.run(["git", "-C", str(work), *arguments], check=True, capture_output=True)
        head = subprocess.run(["git", "-C", str(work), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
        return head.stdout.strip()

    def is_synced(self, commit):
        """Whether the commit is applied."""
        status = self.get("gitsync", "team", "-n", "agents")["status"]
        ready = [c["status"] for c in status["conditions"] if c["type"] == "Ready"]
        return commit in json.dumps(status["lastAppliedRevision"]) and ready == ["True"]

    def settled(self, name):
        """An agent and its one pod, once its status says so and no pod is about to go."""
        status = self.get("agent", name, "-n", "agents")["status"]
        pods = self.get("pods", "-n", "agents", "-l", f"convoke.dev/name={name},convoke.dev/kind=agent")["items"]
        found = (status["phase"], status["readyReplicas"], len(pods))
        if found != ("Ready", 1, 1) or "deletionTimestamp" in pods[0]["metadata"]:
            raise AssertionError(f"phase, ready replicas, pods: {found}")
        return status, pods[0]

    def test_every_agent_is_ready_and_its_numbers_are_true(self):
        agents = [agent["metadata"]["name"] for agent in self.get("agents", "-n", "agents")["items"]]
        self.assertLessEqual({"coordinator", "researcher", "writer"}, set(agents))
        for name in agents:
            # Another test may have changed it a moment ago.
            status, pod = self.eventually(f"{name} is settled", lambda name=name: self.settled(name))
            # The same image, by digest, as the status says.
            self.assertEqual(pod["spec"]["containers"][0]["image"], status["image"])
            # Through the Service that the endpoint names.
            service = status["endpoint"].removeprefix("http://").partition(".")[0]
            self.kubectl("get", "--raw", f"/api/v1/namespaces/agents/services/{service}:8000/proxy/health")

    def test_t1_the_clock_of_the_example_tells_its_tools(self):
        client = {"name": "test", "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        endpoint = self.get("mcpserver", "clock", "-n", "agents")["status"]["endpoint"]
        requests = [
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            for method, params in (("initialize", hello), ("tools/list", {}))
        ]
        # From an agent's pod, at the address that agents are told.
        text = self.eventually(
            "an answer",
            lambda: self.kubectl(
                "exec", "-n", "agents", "deployment/agent-coordinator", "--", "python", "-c", ASK, endpoint, *requests
            ),
        )
        hello, listed = (json.loads(line)["result"] for line in text.splitlines())
        self.assertEqual(hello["serverInfo"]["name"], "mcp-time")
        self.assertEqual([tool["name"] for tool in listed["tools"]], ["get_current_time", "convert_time"])

    def ask(self, agent, question):
        """What an agent answers to a question, asked over A2A through its Service."""
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": question}]}
        request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        endpoint = self.get("agent", agent, "-n", "agents")["status"]["endpoint"]
        pod = f"deployment/agent-{agent}"
        return self.kubectl("exec", "-n", "agents", pod, "--", "python", "-c", ASK, endpoint, json.dumps(request))

    def pod_of(self, server):
        """The one pod of a tool server."""
        pods = self.get("pods", "-n", "agents", "-l", f"convoke.dev/name={server},convoke.dev/kind=mcpserver")["items"]
        return pods[0]["metadata"]["name"] if len(pods) == 1 else None

    def test_a2_a9_pushed_agents_answer_through_a_tool_and_a_peer_and_read_a_new_prompt(self):
        image = self.get("agent", "writer", "-n", "agents")["status"]["image"]
        objects = {"apiVersion": "v1", "kind": "List", "items": model(image)}
        self.kubectl("apply", "-n", "agents", "--server-side", "-f", "-", text=json.dumps(objects))
        for path, text in conversation().items():
            file = self.state / "work/team/conversation" / path
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        subprocess.run(["git", "-C", str(self.state / "work"), "add", "--all"], check=True, capture_output=True)
        commit = self.push("team/conversation/asker.md", "\n")
        self.eventually("the commit is applied", lambda: self.is_synced(commit))
        for agent in ("asker", "helper"):
            self.kubectl("wait", "-n", "agents", "--for=condition=Ready", f"agent/{agent}", f"--timeout={2 * POD_SECONDS}s")
        # Each tool tells the name of its pod, which nobody knew before. The model repeats what it was told.
        asked, helped = (self.eventually(f"one pod of {one}", lambda one=one: self.pod_of(one)) for one in ("asked", "helped"))
        # A Service leads to a pod a moment after the pod is ready.
        expected = f"the tool says {asked}, the peer says helper: {helped}"

        def both_answer():
            self.assertIn(expected, self.ask("asker", "Who is there?"))
            return True

        self.eventually("an answer of both", both_answer)
        # A new prompt reaches the pod that runs.
        before = self.settled("asker")[1]["metadata"]["uid"]
        self.push("team/conversation/asker.md", "You answer shortly.\n")
        # A kubelet brings a changed ConfigMap within about a minute.
        told = lambda: "shortly: Who is there?" in self.ask("asker", "Who is there?")
        self.eventually("the new prompt", told, seconds=2 * POD_SECONDS)
        self.assertEqual(self.settled("asker")[1]["metadata"]["uid"], before)

    def test_d4_questions_are_asked_and_answered_at_the_end(self):
        # Agents without builds are asked without Tekton, too.
        for shown, answers in ((self.shown_without_tekton, 2), (self.shown, 3)):
            end = shown.partition("Agents were asked.")[2]
            self.assertIn('\n  convoke ask agent/researcher "Does it work?"\n', end)
            # Each answers from the script. The researcher repeats what the writer said.
            self.assertEqual(end.count("This is the scripted model of the quick start: "), answers, shown)
        # What they did is shown as it happens, and the question has three words.
        self.assertIn("\n  → tool text-tools/count_words\n  → agent writer\n", end)
        self.assertIn("counted by a tool, 3, and", end)
        self.assertIn("the writer has read the note.", end)

    def test_without_tekton_one_line_says_how_to_get_builds(self):
        lines = [line for line in self.shown_without_tekton.splitlines() if "Tekton" in line]
        self.assertEqual(len(lines), 1, self.shown_without_tekton)
        self.assertIn("scripts/quickstart --pods --tekton", lines[0])
        self.assertEqual((self.waiting, self.builder), ("Waiting", "TektonNotInstalled"))
        self.assertNotIn("--tekton", self.shown, "Tekton was there")

    def runs(self):
        """The PipelineRuns of the build."""
        found = self.get("pipelineruns", "-n", "agents", "-l", "convoke.dev/name=reviewer")["items"]
        return {run["metadata"]["name"]: run["metadata"]["annotations"]["convoke.dev/commit"] for run in found}

    def built(self):
        """The status of the build and the image by digest that it has built, once the agent's one pod runs that."""
        build = self.get("agentbuild", "reviewer", "-n", "agents")["status"]
        status, pod = self.settled("reviewer")
        images = {build.get("builtImage"), status["image"], pod["spec"]["containers"][0]["image"]}
        self.assertEqual((build["phase"], len(images)), ("Succeeded", 1), images)
        return build, images.pop()

    def ask_by_command(self, agent):
        """What `convoke ask` prints."""
        environment = os.environ | {"KUBECONFIG": str(self.state / "kubeconfig")}
        command = [self.state / "bin/convoke", "ask", "-n", "agents", f"agent/{agent}", "Trains are fast."]
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_b1_b11_an_image_is_built_and_run_and_another_after_a_push_that_changes_its_folder(self):
        status, first = self.eventually("the agent runs what was built", self.built)
        self.assertRegex(first, r"^registry\.convoke-system\.svc:5000/agents/reviewer@sha256:[0-9a-f]{64}$")
        self.assertRegex(status["baseDigest"], "^sha256:[0-9a-f]{64}$")
        # One sees the build and the agent with that digest, and the answer of what is in the image.
        shown = self.shown.partition("An image was built")[2]
        for kind, phase in (("agentbuild", "Succeeded"), ("agent", "Ready")):
            self.assertRegex(shown, rf"(?m)^  {kind}\.convoke\.dev/reviewer +{phase} +True .*{re.escape(first)} ")
        self.assertIn("the last rule in the reviewer's image is: - Quote the words that you mean.", self.shown)
        before = self.runs()
        self.assertEqual(list(before), [status["pipelineRun"]])
        # Elsewhere in the repository.
        commit = self.push("README.md", "\nNothing of the image.\n")
        self.eventually("the commit is applied", lambda: self.is_synced(commit))
        self.assertEqual((self.runs(), self.built()[1]), (before, first))
        # In the folder, as the quick start says.
        (line,) = [line for line in shown.splitlines() if line.endswith(">> images/reviewer/rules.md")]
        rule = line.split("'")[1]
        commit = self.push("images/reviewer/rules.md", f"{rule}\n")

        def another():
            status, image = self.built()
            self.assertEqual(status["lastBuiltCommit"], commit)
            self.assertNotEqual(image, first)
            return True

        self.eventually("the agent runs another image", another, seconds=BUILD_SECONDS)
        self.assertIn(f"the last rule in the reviewer's image is: {rule}\n", self.ask_by_command("reviewer"))
        # No other commit was built.
        self.assertEqual(sorted(self.runs().values()), sorted([*before.values(), commit]))

    def test_what_took_how_long_is_printed(self):
        times = self.shown.partition("What took how long:")[2].splitlines()
        self.assertGreaterEqual(len([line for line in times if " s  " in line]), 6, self.shown)

    def test_o6_the_operator_runs_as_strictly_as_pod_security_can_ask_for(self):
        namespace = self.get("namespace", "convoke-system")
        self.assertEqual(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted")
        pod = self.eventually("one ready operator", self.operator)
        self.assertEqual(pod["spec"]["serviceAccountName"], "convoke")
        container = pod["spec"]["containers"][0]
        self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
        self.assertRegex(container["image"], "/convoke@sha256:[0-9a-f]{64}$")
        # It says nothing that a person would have to look into.
        log = self.kubectl("logs", "-n", "convoke-system", pod["metadata"]["name"])
        self.assertIn("operator started", log)
        self.assertEqual([line for line in log.splitlines() if " ERROR " in line], [])

    def test_a_push_reaches_the_pods(self):
        old = self.get("deployment", "agent-writer", "-n", "agents")["metadata"]["generation"]
        commit = self.push("team/agents/prompts/writer.md", "- Write short sentences.\n")
        self.eventually("the commit is applied", lambda: self.is_synced(commit))
        self.eventually(
            "the Deployment follows",
            lambda: self.get("deployment", "agent-writer", "-n", "agents")["metadata"]["generation"] > old,
        )
        self.kubectl("rollout", "status", "-n", "agents", "deployment/agent-writer", f"--timeout={POD_SECONDS}s")

        def prompt():
            text = self.kubectl("exec", "-n", "agents", "deployment/agent-writer", "--", "python", "-c", PRINT_INSTRUCTIONS)
            return "Write short sentences." in text

        self.eventually("the new pod has the new prompt", prompt)
        self.kubectl("wait", "-n", "agents", "--for=condition=Ready", "agent/writer", f"--timeout={POD_SECONDS}s")

    def test_an_operator_that_is_killed_comes_back_and_goes_on(self):
        before = self.eventually("one ready operator", self.operator)
        self.kubectl("delete", "pod", "-n", "convoke-system", before["metadata"]["name"], "--wait=false")
        after = self.eventually(
            "another one", lambda: (pod := self.operator()) and pod["metadata"]["uid"] != before["metadata"]["uid"] and pod
        )
        self.assertEqual(after["status"]["containerStatuses"][0]["restartCount"], 0)
        commit = self.push("team/agents/prompts/researcher.md", "- Prefer sources from the last two years.\n")
        self.eventually("the commit is applied", lambda: self.is_synced(commit))


def cache_without_tekton():
    """A cache folder with all that the one of this machine has, but not Tekton's programs."""
    folder = tempfile.TemporaryDirectory(prefix="convoke-cache-")
    ours = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "convoke"
    theirs = Path(folder.name) / "convoke"
    (theirs / "bin").mkdir(parents=True)
    for one in [*ours.iterdir(), *(ours / "bin").iterdir()]:
        link = theirs / one.relative_to(ours)
        if one.name != "bin" and not one.name.startswith("tekton-"):
            link.symlink_to(one)
    return folder


# URL, and requests (JSON); prints the answers.
ASK = """
import sys, urllib.request
for text in sys.argv[2:]:
    kind = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    with urllib.request.urlopen(urllib.request.Request(sys.argv[1], text.encode(), kind), timeout=20) as reply:
        print(reply.read().decode())
"""
# What the model says: it asks for a tool, then for the peer, then repeats what both have told.
SCRIPT = {
    "rules": [
        {"system": "You answer shortly", "steps": [{"text": "shortly: {prompt}"}]},
        {
            "system": "You are the asker",
            "steps": [
                {"tool": "pod_name", "arguments": {}},
                {"tool": "delegate_to_helper", "arguments": {"message": "Who are you?"}},
                {"text": "the tool says {0}, the peer says {1}"},
            ],
        },
        {"system": "You are the helper", "steps": [{"tool": "pod_name", "arguments": {}}, {"text": "helper: {0}"}]},
    ]
}
TOOLS = """import os


def pod_name() -> str:
    \"\"\"Tells the name of the pod.\"\"\"
    return os.uname().nodename
"""


def ours(kind, name, **spec):
    return {"apiVersion": "convoke.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def conversation():
    """The files of two agents that answer together, each with a tool server of its own."""
    files = {"tools.py": TOOLS, "asker.md": "You are the asker.\n", "helper.md": "You are the helper.\n"}
    objects = {
        "scripted": ours("ModelAPI", "scripted", mode="External", external={"url": "http://model.agents.svc:8000/v1"}),
        "asked": ours("MCPServer", "asked", toolsStringFile="tools.py"),
        "helped": ours("MCPServer", "helped", toolsStringFile="tools.py"),
    }
    for agent, server, peers in (("asker", "asked", ["helper"]), ("helper", "helped", [])):
        objects[agent] = ours(
            "Agent",
            agent,
            modelAPI="scripted",
            model="small",
            config={"instructionsFile": f"{agent}.md", "reload": "Hot"},
            mcpServers=[server],
            agentNetwork={"access": peers},
        )
    return files | {f"{name}.yaml": json.dumps(value, indent=1) for name, value in objects.items()}


def model(image):
    """A model API that says what its script tells it to, as a pod with a Service."""
    labels = {"app": "model"}
    files = {"scripted_model.py": (ROOT / "runtime/tests/scripted_model.py").read_text(), "script.json": json.dumps(SCRIPT)}
    command = ["python", "/model/scripted_model.py", "--port", "8000", "--script", "/model/script.json"]
    container = {
        "name": "model",
        "image": image,
        "command": command,
        "volumeMounts": [{"name": "files", "mountPath": "/model"}],
        "readinessProbe": {"httpGet": {"path": "/v1/models", "port": 8000}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "containers": [container],
        "volumes": [{"name": "files", "configMap": {"name": "model"}}],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    meta = {"name": "model", "namespace": "agents"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {"selector": {"matchLabels": labels}, "template": template}
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": files},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": labels, "ports": [{"port": 8000}]}},
    ]


PRINT_INSTRUCTIONS = "import os; print(os.environ['AGENT_INSTRUCTIONS'])"

if __name__ == "__main__":
    unittest.main()
