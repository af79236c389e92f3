"""What scripts/images promises: images that run in the strictest pods, built once, and pushed once.

    cd scripts/lib && python3 -B -m unittest -v test_images        needs root; scripts/test runs it

Standard library only. The image of Convoke is made of a program that was built before: $CONVOKE_BINARY, or the newest
in the target folder.
"""

import http.server
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading
import unittest
from pathlib import Path

import oci
from test_node import POD_SECONDS, Cluster, run_script

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
IMAGES = HERE.parent / "images"
BUILD_SECONDS = 900
MEBIBYTE = 1 << 20
# All that is in the image of Convoke besides its program: Debian and certificates.
CONVOKE_MEBIBYTES = 95
# As the operator's pods have it.
STRICT = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
POD = {"runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
TOOLS = (ROOT / "examples-repo/team/tools/tools.py").read_text()
# A client of the least: URL, how many requests at once, then the requests (JSON). Answers come as one event each.
ASK = """
import concurrent.futures, json, sys, urllib.request
def ask(text):
    kind = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    with urllib.request.urlopen(urllib.request.Request(sys.argv[1], text.encode(), kind), timeout=20) as reply:
        body = reply.read().decode()
    return next((l[6:] for l in body.splitlines() if l.startswith("data: {")), body)
with concurrent.futures.ThreadPoolExecutor(int(sys.argv[2])) as pool:
    for answer in pool.map(ask, sys.argv[3:]):
        print(answer)
"""
# As the operator has it, with the same options of pip.
BRIDGE = (ROOT / "src/controllers/mcp_server/bridge.py").read_text()
INDEX = "packages.convoke-system.svc"
PIP = ["python", "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"]
PIP += ["--index-url", f"http://{INDEX}:8080/simple/", "--trusted-host", INDEX]
CLOCK = "mcp-server-time==2026.10.19"
# Kills the program whose name is given, which is a script.
KILL = """
import os, pathlib, sys
for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    if file.read_text().split("\\0")[1:2] == sys.argv[1:]:
        os.kill(int(file.parent.name), 9)
        print("killed")
"""

# As the operator has it, too.
NPM = ["npm", "install", "--cache", "/tmp/npm", "--no-fund", "--no-audit", "--registry", f"http://{INDEX}:8080/npm"]
EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT})


def pod(name, image, user=None, **container):
    """A pod as strict as Pod Security `restricted` asks for, with an empty /tmp."""
    security = POD | ({"runAsUser": user} if user else {})
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]
    main = {"name": "main", "image": image, "securityContext": STRICT, "volumeMounts": mounts} | container
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "demo", "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": security,
            "volumes": [{"name": "tmp", "emptyDir": {}}],
            "containers": [main],
        },
    }


def clock(image):
    """A pod of a server that speaks MCP over stdio, as the operator makes it."""
    wanted = {"install": ("/packages", CLOCK), "install-bridge": ("/packages/.bridge", "mcp-proxy==0.13.0")}
    env = [{"name": "HOME", "value": "/tmp"}, {"name": "PYTHONPATH", "value": "/packages"}]
    command = ["python", "-I", "-c", BRIDGE, "/packages/.bridge", "8000", "/packages/bin/mcp-server-time"]
    probe = {"tcpSocket": {"port": 8000}, "periodSeconds": 1}
    # The limit of the example.
    limits = {"limits": {"cpu": "500m", "memory": "256Mi"}}
    made = pod("clock", image, user=1000, command=command, env=env, readinessProbe=probe, resources=limits)
    spec = made["spec"]
    spec["volumes"].append({"name": "packages", "emptyDir": {}})
    main = spec["containers"][0]
    main["volumeMounts"] = [*main["volumeMounts"], {"name": "packages", "mountPath": "/packages"}]
    spec["initContainers"] = [
        {key: main[key] for key in ("image", "env", "resources", "securityContext", "volumeMounts")}
        | {"name": name, "command": [*PIP, "--target", folder, "--", package]}
        for name, (folder, package) in wanted.items()
    ]
    return made


def index(image):
    """The manifest of the package index, with its image, in a namespace that enforces `restricted`."""
    labels = "{pod-security.kubernetes.io/enforce: restricted}"
    namespace = f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: convoke-system, labels: {labels}}}\n---\n"
    return namespace + (HERE / "images/packages/packages.yaml").read_text().replace("image: IMAGE", f"image: {image}")


def program():
    """A program `convoke` without symbols, and the temporary folder that it is in; None for one that others use, too."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    if "CONVOKE_BINARY" in os.environ:
        # As it is: the quick start makes the same image of it then.
        return Path(os.environ["CONVOKE_BINARY"]), None
    found = [path for kind in ("release", "debug") if (path := target / kind / "convoke").exists()]
    if not found:
        raise AssertionError(f"no program in {target}: cargo build")
    stripped = Path(tempfile.mkdtemp(prefix="convoke-images-")) / "convoke"
    newest = max(found, key=lambda path: path.stat().st_mtime)
    subprocess.run(["strip", "-o", stripped, newest], check=True)
    return stripped, stripped.parent


def images(state, *arguments):
    """scripts/images; gives what it printed (name: value), and what it said."""
    printed, said = run_script(IMAGES, *arguments, state=state, seconds=BUILD_SECONDS)
    return dict(line.split("=", 1) for line in printed.splitlines()), said


# An agent is ready without asking its model.
AGENT = [
    {"name": name, "value": value}
    for name, value in (("AGENT_NAME", "critic"), ("MODEL_API_URL", "http://model:8000"), ("MODEL_NAME", "small"))
]


class ImagesRun(unittest.TestCase):
    """All images, in one cluster."""

    @classmethod
    def setUpClass(cls):
        cls.program, folder = program()
        if folder:
            cls.addClassCleanup(shutil.rmtree, folder)
        cls.cluster = cluster = Cluster()
        cls.addClassCleanup(cluster.remove)
        cluster.up()
        cls.binary = ("--binary", str(cls.program))
        cls.references, _ = images(cluster.state, "push", *cls.binary)
        got = cls.references
        namespace = {"name": "demo", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
        cls.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": namespace}])
        cluster.eventually(
            "a ServiceAccount", lambda: cluster.kubectl("get", "serviceaccount", "default", "-o", "name")
        )
        apply = ["apply", "--namespace=convoke-system", "--server-side", "--force-conflicts", "-f", "-"]
        cluster.kubectl(*apply, text=index(got["packages"]))
        # All at once: each is looked at by its test.
        idle = ["sleep", "86400"]
        tools = [{"name": "MCP_TOOLS_STRING", "value": TOOLS}, {"name": "HOME", "value": "/tmp"}]
        cls.apply(
            [
                pod("version", got["convoke"], args=["version"]),
                pod("convoke", got["convoke"], command=idle),
                pod("python", got["python"], user=1000, command=idle, env=[{"name": "HOME", "value": "/tmp"}]),
                pod("node", got["node"], user=1000, command=idle, env=[{"name": "HOME", "value": "/tmp"}]),
                pod("agent", got["agent"], env=AGENT),
                pod("tools", got["agent"], command=["python", "-m", "mcptools.server"], env=tools),
                clock(got["python"]),
                pod("web", got["web"], env=[{"name": "AGENT_NAME", "value": "writer"}], user=1000),
                pod("web-2", got["web-2"], env=[{"name": "WEB_CRASH", "value": "3"}]),
                pod("client", f"{cluster.registry}/busybox@{cluster.digest}", command=["/bin/sleep", "86400"]),
            ]
        )

    @classmethod
    def apply(cls, objects):
        """Applies objects."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        cls.cluster.kubectl("apply", "-f", "-", text=text)

    def ready(self, name):
        """Waits until a pod runs; gives its address."""
        try:
            self.cluster.kubectl("wait", "--for=condition=Ready", f"--timeout={POD_SECONDS}s", f"pod/{name}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.cluster.kubectl('describe', 'pod', name)}") from error
        return self.cluster.kubectl("get", "pod", name, "-o", "jsonpath={.status.podIP}")

    def layers(self, name):
        """The files that are an image's layers."""
        folder = Path(images(self.cluster.state, "build", *self.binary, name)[0][name])
        return [oci.blob_path(folder, part["digest"]) for part in json.loads(oci.layout_manifest(folder))["layers"]]

    def in_pod(self, name, *command):
        """What a command prints in a pod."""
        self.ready(name)
        return self.cluster.kubectl("exec", name, "--", *command)

    def end_of(self, name):
        """How a pod's container ended."""

        def ended():
            state = json.loads(self.cluster.kubectl("get", "pod", name, "-o", "json"))["status"]
            return state.get("containerStatuses", [{}])[0].get("state", {}).get("terminated")

        return self.cluster.eventually(f"the end of {name}", ended)

    def fetch(self, name, path, *options):
        """What a pod answers on port 8000 as soon as it listens (JSON)."""
        address = self.ready(name)
        self.ready("client")
        command = ["exec", "client", "--", "wget", "-q", "-O", "-", *options, f"http://{address}:8000{path}"]
        return json.loads(self.cluster.eventually(f"an answer of {name}", lambda: self.cluster.kubectl(*command)))

    def test_convoke_says_its_version(self):
        self.assertEqual(self.end_of("version")["exitCode"], 0)
        self.assertRegex(self.cluster.kubectl("logs", "version"), r"^convoke \d+\.\d+\.\d+")

    def test_convoke_needs_no_git_and_no_ssh(self):
        self.assertEqual(self.in_pod("convoke", "sh", "-c", "command -v git ssh || true").strip(), "")

    def test_convoke_has_nothing_that_gives_rights(self):
        found = []
        for layer in self.layers("convoke"):
            with tarfile.open(layer) as tar:
                found += [member.name for member in tar if member.isfile() and member.mode & 0o6000]
        self.assertEqual(found, [])

    def test_convoke_is_small(self):
        rest = sum(layer.stat().st_size for layer in self.layers("convoke")) - self.program.stat().st_size
        self.assertLess(rest / MEBIBYTE, CONVOKE_MEBIBYTES)

    def test_python_has_a_pip_that_may_install(self):
        self.assertIn("python 3.13", self.in_pod("python", "python", "-m", "pip", "--version"))
        with self.assertRaisesRegex(AssertionError, "Invalid requirement"):
            self.in_pod("python", "python", "-m", "pip", "install", "--no-index", "--target", "/tmp/here", "--", "-")

    def test_pip_takes_from_the_index_what_is_locked_and_nothing_else(self):
        self.cluster.kubectl(
            "rollout", "status", "deployment/packages", "-n", "convoke-system", f"--timeout={POD_SECONDS}s"
        )
        said = self.in_pod("python", *PIP, "--target", "/tmp/clock", "--", CLOCK)
        self.assertRegex(said, "Successfully installed .*mcp-2.3.0.* mcp-server-time-2026.10.19")
        with self.assertRaisesRegex(AssertionError, r"from versions: 2026\.10\.19\)"):
            self.in_pod("python", *PIP, "--target", "/tmp/other", "--", "mcp-server-time==1.0")
        with self.assertRaisesRegex(AssertionError, "No matching distribution"):
            self.in_pod("python", *PIP, "--target", "/tmp/other", "--", "requests")
        # Why the operator says that a host is trusted.
        doubtful = [word for word in PIP if word not in ("--trusted-host", INDEX)]
        with self.assertRaisesRegex(AssertionError, "not a trusted or secure host"):
            self.in_pod("python", *doubtful, "--target", "/tmp/other", "--", CLOCK)

    def test_npm_takes_from_the_registry_what_is_locked_and_nothing_else(self):
        self.cluster.kubectl(
            "rollout", "status", "deployment/packages", "-n", "convoke-system", f"--timeout={POD_SECONDS}s"
        )
        self.assertRegex(self.in_pod("node", *NPM, "--prefix", "/tmp/here", "--", EVERYTHING), "added [0-9]+ packages")
        # It is whole: it runs.
        program = "/tmp/here/node_modules/.bin/mcp-server-everything"
        ask = f"(echo '{INITIALIZE}'; sleep 5) | timeout 20 {program} 2>/dev/null | head -n1"
        answer = json.loads(self.in_pod("node", "sh", "-c", ask))
        self.assertIn("everything", answer["result"]["serverInfo"]["name"])
        with self.assertRaisesRegex(AssertionError, "E404"):
            self.in_pod("node", *NPM, "--prefix", "/tmp/other", "--", "left-pad")
        with self.assertRaisesRegex(AssertionError, "ETARGET|No matching version"):
            self.in_pod("node", *NPM, "--prefix", "/tmp/other", "--", "express@1.0.0")

    def test_t1_a_server_over_stdio_is_bridged_and_ends_with_its_program(self):
        address = self.ready("clock")
        hello, listed, called = self.ask(address, "get_current_time", [{"timezone": "Europe/Berlin"}])
        self.assertEqual(hello["serverInfo"]["version"], "2026.10.19")
        self.assertEqual([tool["name"] for tool in listed["tools"]], ["get_current_time", "convert_time"])
        self.assertEqual(called["structuredContent"]["timezone"], "Europe/Berlin")
        # Many clients at once, and each gets its own answer.
        hours = [f"{hour:02}:00" for hour in range(24)]
        asked = [{"source_timezone": "UTC", "target_timezone": "UTC", "time": hour} for hour in hours]
        _, _, *answers = self.ask(address, "convert_time", asked, at_once=12)
        found = [answer["structuredContent"]["target"]["datetime"][11:16] for answer in answers]
        self.assertEqual(found, hours)
        try:
            killed = self.in_pod("clock", "python", "-c", KILL, "/packages/bin/mcp-server-time")
            self.assertEqual(killed.split(), ["killed"])
        except AssertionError as error:
            # The container may end before the command, which is killed with it.
            self.assertIn("exit code 137", str(error))
        self.assertEqual(self.end_of("clock")["exitCode"], 1)
        self.assertIn("/packages/bin/mcp-server-time ended with exit code -9", self.cluster.kubectl("logs", "clock"))

    def test_the_agent_answers_probes_and_describes_itself(self):
        self.assertEqual(self.fetch("agent", "/health"), {"status": "ok"})
        self.assertEqual(self.fetch("agent", "/ready")["status"], "ok")
        self.assertEqual(self.fetch("agent", "/.well-known/agent-card.json")["name"], "critic")

    def ask(self, address, tool, calls, at_once=1):
        """What a tool server says to `initialize`, `tools/list` and calls of a tool (arguments)."""
        client = {"name": "test", "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        requests = [("initialize", hello), ("tools/list", {})]
        requests += [("tools/call", {"name": tool, "arguments": arguments}) for arguments in calls]
        texts = [
            json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            for number, (method, params) in enumerate(requests)
        ]
        ask = ["exec", "python", "--", "python", "-c", ASK, f"http://{address}:8000/mcp", str(at_once), *texts]
        self.ready("python")
        answers = self.cluster.eventually("answers", lambda: self.cluster.kubectl(*ask)).splitlines()
        return [json.loads(answer)["result"] for answer in answers]

    def test_functions_of_a_string_are_tools(self):
        hello, listed, called = self.ask(self.ready("tools"), "count_words", [{"text": "one two three"}])
        self.assertIn("tools", hello["capabilities"])
        self.assertEqual([tool["name"] for tool in listed["tools"]], ["count_words", "list_links", "missing_links"])
        self.assertEqual(listed["tools"][0]["description"], "Count the words of a text.")
        self.assertEqual(called["structuredContent"], {"result": 3})

    def test_web_is_as_it_is_told(self):
        self.assertEqual(self.fetch("web", "/some/path")["name"], "writer")
        self.fetch("web", "/ready")
        self.fetch("web", "/be/unready", "--post-data", "")
        address = self.ready("web")
        with self.assertRaisesRegex(AssertionError, "503"):
            self.in_pod("client", "wget", "-q", "-O", "-", f"http://{address}:8000/ready")
        self.fetch("web", "/be/ready", "--post-data", "")
        self.fetch("web", "/ready")
        self.assertEqual(self.end_of("web-2")["exitCode"], 3)

    def test_what_is_built_is_not_built_again(self):
        again, said = images(self.cluster.state, "push", *self.binary)
        self.assertEqual(again, self.references)
        self.assertNotIn("building", said)


class Pushes(unittest.TestCase):
    """What a registry is asked."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="convoke-images-"))
        self.addCleanup(shutil.rmtree, self.folder)
        layout = self.folder / "layout"
        program = self.folder / "program"
        program.write_bytes(b"program")
        self.image = oci.Image({"program": program}, config={"User": "1:1"})
        self.image.write_layout(layout)
        self.layout = layout
        self.asked = asked = []
        self.tag = None
        test = self

        class Registry(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self):
                asked.append(f"HEAD {self.path}")
                self.send_response(200 if test.tag and "/manifests/" in self.path else 404)
                self.send_header("Docker-Content-Digest", test.tag or "")
                self.end_headers()

            def do_POST(self):
                self.take(202, "/upload?state=1")

            def do_PUT(self):
                self.take(201)

            def take(self, status, location=""):
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                asked.append(f"{self.command} {self.path} {oci.digest(body)}")
                self.send_response(status)
                self.send_header("Location", location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.registry = f"127.0.0.1:{server.server_port}"

    def test_what_is_there_costs_one_request(self):
        self.tag = oci.digest(self.image.manifest)
        self.assertEqual(oci.push_layout(self.layout, self.registry, "one", "1"), self.tag)
        self.assertEqual(self.asked, ["HEAD /v2/one/manifests/1"])

    def test_blobs_go_first_and_the_manifest_last(self):
        digest = oci.push_layout(self.layout, self.registry, "one", "1")
        puts = [line for line in self.asked if line.startswith("PUT")]
        for put, name in zip(puts, [*reversed(self.image.blobs), digest], strict=True):
            self.assertTrue(put.endswith(name), puts)
        self.assertEqual(puts[-1], f"PUT /v2/one/manifests/1 {digest}")


if __name__ == "__main__":
    unittest.main()
