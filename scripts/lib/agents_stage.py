"""Convoke in a pod of a cluster of its own, installed as users install it, with a team and a model that is a script.

For test_agents.py and test_agents_endure.py. Needs root. Standard library only.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

import agents_team as team
from kube_api import Api, Refused
from test_node import Cluster, eventually, namespaces, processes_in

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OPERATOR = "convoke-system"
# Images may have to be built.
INSTALL_SECONDS = 1500
READY_SECONDS = 240
# The folder of this checkout. Services and the Git server of the test are in these networks.
INSTALL = """
source "$1/scripts/lib/common.sh"
operator_namespace=convoke-system namespace=team-a
source "$ROOT/scripts/lib/in_cluster.sh"
export KUBECONFIG=$STATE/kubeconfig PATH=$STATE/bin:$PATH
images+=("${@:2}")
operator_options=(--allow-addresses=10.96.0.0/16 --allow-addresses=10.197.0.0/16)
provide_images
install_operator
operator_is_ready
"""


def condition(value, type_):
    """What a condition of an object says: (status, reason, message)."""
    for one in (value.get("status") or {}).get("conditions", []):
        if one["type"] == type_:
            return one["status"], one.get("reason"), one.get("message", "")
    return None, None, ""


def is_ready(value):
    """Whether the status says so of the newest spec."""
    ready = [one for one in (value.get("status") or {}).get("conditions", []) if one["type"] == "Ready"]
    generation = value["metadata"]["generation"]
    return bool(ready) and ready[0]["status"] == "True" and ready[0].get("observedGeneration") == generation


class Stage:
    """The cluster, and what is done in it. Nothing is there before `up`."""

    # Images besides those that the operator takes by default.
    more_images = ("web", "pydantic-ai-server")

    def __init__(self):
        self.root = ROOT
        self.cluster = None
        self.git_server = None
        self.lock = threading.Lock()

    # ---- up and down

    def all_ready(self, wanted):
        """Starts all of it, and waits until the objects of each kind are Ready."""
        self.up()
        for kind, names in wanted.items():
            for name in names:
                self.ready(kind, name)

    def up(self):
        """Starts all of it."""
        self.cluster = Cluster()
        # Objects here say which namespace they are of.
        self.cluster.options = []
        self.state = self.cluster.state
        self.cluster.command("up", "--node")
        self.connect()
        self.install()
        self.provide_model()
        self.provide_team()

    def connect(self):
        """From now on the cluster is asked."""
        self.kubectl = self.cluster.kubectl
        self.api = Api(json.loads(self.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json")))

    def install(self):
        """Installs the operator, from deploy/."""
        done = subprocess.run(
            ["bash", "-c", INSTALL, "bash", str(ROOT), *self.more_images],
            env=os.environ | {"CONVOKE_STATE": str(self.state)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"the operator was not installed: {done.stderr[-4000:]}{self.cluster.logs()}")
        lines = (self.state / "images.out").read_text().splitlines()
        self.images = dict(line.split("=", 1) for line in lines)

    def namespace(self, name):
        """Makes a namespace that admits the strictest pods only."""
        meta = {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})

    def give_keys(self, namespace):
        """Lets the operator write keys there."""
        self.bind_to_operator("convoke-keys", namespace)

    def bind_to_operator(self, role, namespace=team.NAMESPACE):
        """Gives the operator a ClusterRole in a namespace."""
        command = ["create", "rolebinding", role, f"--clusterrole={role}"]
        self.kubectl("-n", namespace, *command, f"--serviceaccount={OPERATOR}:convoke")

    def provide_model(self):
        """The model, and the pod that asks what pods ask."""
        self.namespace(team.PROVIDER)
        model = {
            "scripted_model.py": (ROOT / "runtime/tests/scripted_model.py").read_text(),
            "script.json": json.dumps(team.SCRIPT),
        }
        command = ["python", "/files/scripted_model.py", "--port", "8000", "--script", "/files/script.json"]
        probe = {"prober.py": (HERE / "prober.py").read_text()}
        image = self.images["python"]
        open_model = model | {"script.json": json.dumps(team.SCRIPT | {"key": None})}
        self.apply(
            *team.in_pod("model", image, model, command, "/health"),
            *team.in_pod("open-model", image, open_model, command, "/health"),
            *team.in_pod("prober", image, probe, ["python", "/files/prober.py", "8000"], "/"),
        )
        for name in ("model", "open-model", "prober"):
            self.kubectl("-n", team.PROVIDER, "rollout", "status", f"deployment/{name}", "--timeout=120s", seconds=120)

    def provide_team(self):
        """The namespace of the team with what team.yaml gives, and its repository."""
        self.namespace(team.NAMESPACE)
        self.give_provider_key(team.NAMESPACE)
        self.make_repository()
        self.sync()
        self.provide_asker()

    def sync(self):
        """Gives the team what team.yaml gives, and syncs its repository."""
        given = (ROOT / "deploy/team.yaml").read_text()
        address = f"http://{self.machine()}:{self.serve_repository()}/remote.git"
        given = given.replace("https://git.example.com/team-a/agents.git", address)
        given += "  path: ./team\n  interval: 5s\n"
        self.kubectl("apply", "--server-side", "-f", "-", text=given)

    def give_provider_key(self, namespace):
        """The key of the model's provider, as a person makes it."""
        literals = [f"--from-literal=key={team.PROVIDER_KEY}", f"--from-literal=header={team.HEADER}"]
        self.kubectl("-n", namespace, "create", "secret", "generic", "provider-key", *literals)
        self.kubectl("-n", namespace, "label", "secret/provider-key", "convoke.dev/agents=allow")

    def provide_asker(self):
        """A person who may ask agents and nothing else: a kubeconfig of theirs."""
        self.kubectl("-n", team.NAMESPACE, "create", "serviceaccount", "asker")
        subject = f"--serviceaccount={team.NAMESPACE}:asker"
        self.kubectl("-n", team.NAMESPACE, "create", "rolebinding", "asker", "--role=convoke-ask", subject)
        token = self.kubectl("-n", team.NAMESPACE, "create", "token", "asker", "--duration=8h").strip()
        config = json.loads(self.kubectl("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        config["users"][0]["user"] = {"token": token}
        self.asker = self.state / "asker.json"
        self.asker.touch(mode=0o600)
        self.asker.write_text(json.dumps(config))

    def remove(self):
        """Stops all of it, in whatever state it is."""
        if self.git_server is not None:
            self.git_server.terminate()
            self.git_server.wait(timeout=20)
        if self.cluster is not None:
            self.cluster.remove()

    # ---- the repository

    def git(self, *arguments, folder="work"):
        command = ["git", "-C", str(self.state / folder), "-c", "user.name=Test", "-c", "user.email=test@localhost"]
        done = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def make_repository(self):
        """A bare remote, and a working copy with the first commit, which is pushed."""
        for folder, kind in (("remote.git", ["--bare"]), ("work", [])):
            (self.state / folder).mkdir()
            self.git("init", "--quiet", "--initial-branch=main", *kind, folder=folder)
        self.git("remote", "add", "origin", str(self.state / "remote.git"))
        self.commit(self.first_files())

    def first_files(self):
        """The files of the first commit, below team/."""
        return team.files()

    def commit(self, files):
        """Commits and pushes files of team/ (name: text, None to remove it); gives the commit."""
        for name, text in files.items():
            path = self.state / "work/team" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", f"change {', '.join(files)}")
        self.git("push", "--quiet", "origin", "HEAD:main")
        return self.git("rev-parse", "HEAD")

    def machine(self):
        """This machine's address, for pods."""
        return json.loads((self.state / "cluster/ready").read_text())["machine"]

    def serve_repository(self):
        """Serves it to pods; gives the port."""
        command = [sys.executable, "-B", str(HERE / "git_http.py"), str(self.state / "remote.git")]
        self.git_server = subprocess.Popen(
            [*command, "--address", self.machine()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return int(self.git_server.stdout.readline())

    def push(self, files):
        """Commits, and waits until the commit is applied."""
        commit = self.commit(files)
        self.applied(commit)
        return commit

    def applied(self, commit, seconds=60):
        """Waits until a commit is applied."""

        def look():
            sync = self.get("gitsyncs", team.NAMESPACE)
            return is_ready(sync) and commit in json.dumps(sync["status"].get("lastAppliedRevision"))

        self.eventually(f"{commit} is applied", look, seconds)

    # ---- objects

    def apply(self, *objects):
        """Applies objects, as kubectl does."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)

    def get(self, kind, name, namespace=team.NAMESPACE):
        return self.api.get(kind, namespace, name)

    def pods(self, kind, name, namespace=team.NAMESPACE):
        """The pods of an Agent, MCPServer or ModelAPI that are not about to go."""
        pods = self.api.list("pods", namespace, f"convoke.dev/kind={kind},convoke.dev/name={name}")
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def ready(self, kind, name, namespace=team.NAMESPACE, seconds=READY_SECONDS):
        """Waits until an object is Ready; gives it."""

        def look():
            value = self.get(kind, name, namespace)
            if value and is_ready(value):
                return value
            raise AssertionError(json.dumps((value or {}).get("status"), indent=1)[:3000])

        return self.eventually(f"{kind} {name} is Ready", look, seconds=seconds)

    def eventually(self, what, probe, seconds=READY_SECONDS):
        """What the probe gives as soon as it gives something without an error."""
        return eventually(what, probe, seconds, 0.3, (AssertionError, OSError, KeyError, ValueError))

    def secret(self, name, key, namespace=team.NAMESPACE):
        """A value of a Secret; None while it is not there."""
        value = self.get("secrets", name, namespace)
        return value and base64.b64decode(value["data"][key]).decode()

    def stop_operator(self):
        """Kills the operator's pod without a word; gives the UID of that pod."""
        pods = self.api.list("pods", OPERATOR, "app.kubernetes.io/name=convoke")
        for pod in pods:
            self.api.delete("pods", OPERATOR, pod["metadata"]["name"], now=True)
        return pods[0]["metadata"]["uid"]

    def operator(self):
        """The operator's pod, once there is exactly one that is ready."""
        pods = self.api.list("pods", OPERATOR, "app.kubernetes.io/name=convoke")
        ready = [pod for pod in pods if condition(pod, "Ready")[0] == "True"]
        return ready[0] if len(pods) == len(ready) == 1 else None

    def scale(self, name, replicas, namespace=team.PROVIDER, label="app"):
        """Gives a Deployment so many pods, and waits until they are ready, or gone."""
        self.api.merge("deployments", namespace, name, {"spec": {"replicas": replicas}})

        def look():
            pods = self.api.list("pods", namespace, f"{label}={name}")
            return len(pods) == replicas and all(condition(pod, "Ready")[0] == "True" for pod in pods)

        self.eventually(f"{replicas} pods of {name}", look, seconds=90)

    # ---- the machine

    def first_process(self):
        """The first process of the node (a PID of this machine)."""
        return json.loads((self.state / "cluster/node/first").read_text())["pid"]

    def restart_node(self):
        """Restarts the node without a word, as a machine that is reset."""
        os.kill(self.first_process(), signal.SIGUSR1)

    @contextmanager
    def silent_api_server(self):
        """The API server takes connections and answers nothing, as long as this lasts."""
        spaces = namespaces(self.first_process())
        (pid,) = [int(pid) for pid, name in processes_in(spaces) if name == "kube-apiserver"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    # ---- questions

    def probe(self, url, body=None, headers=None, method=None, seconds=10):
        """What a pod gets from a URL: (status, text). Raises AssertionError when nobody answers."""
        wanted = {"url": url, "headers": headers or {}, "seconds": seconds}
        wanted["method"] = method or ("GET" if body is None else "POST")
        if body is not None:
            wanted["body"] = json.dumps(body)
            wanted["headers"] = {
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
            } | wanted["headers"]
        said = json.loads(self.api.through("services", team.PROVIDER, "prober", 8000, body=wanted))
        if "error" in said:
            raise AssertionError(f"{url}: {said['error']}")
        return said["status"], said["body"]

    def reach(self, url, body):
        """The same; None while the Service of a pod that has just become ready does not lead to it yet."""
        try:
            return self.probe(url, body)
        except AssertionError as error:
            if "Connection refused" not in str(error):
                raise
            return None

    def ask(self, endpoint, question, seconds=60):
        """The task that an agent at an address answers with, over A2A."""
        message = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": question}]}
        request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        status, text = self.probe(endpoint, request, seconds=seconds)
        if status != 200:
            raise AssertionError(f"HTTP {status}: {text[:500]}")
        return json.loads(text)

    def ask_on_node(self, address, question, seconds=30):
        """What an agent says in the protocol of OpenAI, asked by the node itself: the API server has no part in it."""
        body = json.dumps({"model": "any", "messages": [{"role": "user", "content": question}]})
        program = (
            "import sys, urllib.request as u; "
            "r = u.Request(sys.argv[1], sys.argv[2].encode(), {'Content-Type': 'application/json'}); "
            "print(u.build_opener(u.ProxyHandler({})).open(r, timeout=float(sys.argv[3])).read().decode())"
        )
        inside = ["nsenter", f"--target={self.first_process()}", "--net"]
        command = [sys.executable, "-c", program, f"http://{address}/v1/chat/completions", body, str(seconds)]
        done = subprocess.run([*inside, *command], capture_output=True, text=True, timeout=seconds + 10, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stderr[-1000:])
        return json.loads(done.stdout)["choices"][0]["message"]["content"]

    def convoke(self, *arguments):
        """How `convoke` is run as the person who may ask: the command, and its environment."""
        program = os.environ.get("CONVOKE_BINARY") or str(ROOT / "target/release/convoke")
        command = [program, arguments[0], "--namespace", team.NAMESPACE, *arguments[1:]]
        return command, os.environ | {"KUBECONFIG": str(self.asker)}

    def convoke_ask(self, name, *arguments, seconds=120, code=None):
        """The object that `convoke ask` prints about an agent; with `code` it has to end so."""
        command, environment = self.convoke("ask", f"agent/{name}", *arguments, "-o", "json")
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if not done.stdout or code not in (None, done.returncode):
            raise AssertionError(f"convoke ask: exit code {done.returncode}: {done.stdout}{done.stderr[-2000:]}")
        return json.loads(done.stdout)

    def tell_model(self, script):
        """Gives the model another script."""
        with self.lock:
            self.api.through("services", team.PROVIDER, "model", 8000, "/script", script, method="PUT")

    def logs(self):
        """What all containers have logged, those that ended included."""
        found = []
        pods = json.loads(self.api.request("GET", "/api/v1/pods"))["items"]
        for pod in pods:
            meta = pod["metadata"]
            place = self.api.path("pods", meta["namespace"], meta["name"])
            for container in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]:
                for previous in ("false", "true"):
                    try:
                        query = f"/log?container={container['name']}&previous={previous}"
                        found.append(self.api.request("GET", place + query))
                    except Refused:
                        # It has not run, or not before.
                        continue
        return found
