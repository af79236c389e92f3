"""A cluster with Tekton, Convoke in it, and a team whose images are built from its repository.

For test_builds.py and bench_builds.py. Needs root. Standard library only.
"""

import contextlib
import json
import shutil
import socket
import subprocess
import unittest

import agents_team as team
from agents_stage import OPERATOR, Stage, condition, is_ready
from test_node import CLUSTER, Cluster, run_script
from test_tekton import BUILD_SECONDS, REGISTRY

NAMESPACE = team.NAMESPACE
TEKTON = "tekton-pipelines"
IMAGE = f"{NAMESPACE}/reviewer"
SOURCE = "../images/reviewer"
APPENDED = "../images/appended"
# Builds run beside other tests.
PATIENCE_SECONDS = 480
MODEL_URL = f"http://scripted-model.{OPERATOR}.svc:8000/v1"
PASSWORD = "canary-4711-password"
# The same, as htpasswd keeps it.
PASSWORD_HASH = "$2b$04$zzTuydb3nHpg2htzqPXvOeQzTihWelMR6vTt5pfqmmrYYGqgUnKKe"
DOCKERFILE = "ARG BASE\nFROM ${BASE}\nCOPY note /note\nRUN mkdir -p /tmp && cp /note /tmp/copied\n"


class BuildStage(Stage):
    """The cluster with Tekton, the operator, and a team with an agent whose image is built from its repository."""

    more_images = ("builder", "scanners", "web-shell")
    # What Dockerfiles build on. buildah compresses it again for each image, and the node unpacks it: it is small.
    base = "web-shell"

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
        self.provide_asker()

    def push(self, files):
        """Commits, has it looked at at once, and waits until it is applied: a young build is soon too old to be stopped."""
        commit = self.commit(files)
        now = {"metadata": {"annotations": {"convoke.dev/requestedAt": commit}}}
        self.api.merge("gitsyncs", NAMESPACE, NAMESPACE, now)
        self.applied(commit, seconds=180)
        return commit

    @contextlib.contextmanager
    def without(self, deployment, label, namespace):
        """The pods of a Deployment, which have this label, are away meanwhile."""
        self.api.merge("deployments", namespace, deployment, {"spec": {"replicas": 0}})
        try:
            self.eventually("it is gone", lambda: not self.api.list("pods", namespace, label), 90)
            yield
        finally:
            self.api.merge("deployments", namespace, deployment, {"spec": {"replicas": 1}})

    def eventually(self, what, probe, seconds=PATIENCE_SECONDS):
        return super().eventually(what, probe, seconds)

    def run_convoke(self, *arguments):
        """What a command prints for the person who may ask."""
        command, environment = self.convoke(*arguments)
        return self.printed(command, environment)

    def convoke_as_admin(self, *arguments):
        """The same with all rights."""
        command, environment = self.convoke(*arguments)
        return self.printed(command, environment | {"KUBECONFIG": str(self.state / "kubeconfig")})

    def printed(self, command, environment):
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def objects(self, *where):
        """All objects but Secrets that `kubectl get` finds there, as text."""
        kinds = self.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
        kinds = ",".join(kind for kind in kinds if kind != "secrets")
        return self.kubectl("get", kinds, *where, "-o", "json", seconds=120)

    def in_cluster(self, image):
        """The name of an image for pods."""
        return self.images[image].replace(self.registry(), REGISTRY)

    def registry(self):
        """The cluster's registry, as this machine reaches it."""
        return json.loads((self.state / "cluster/ready").read_text())["registry"]

    def name_images(self, mode="dev"):
        """The shipped template of a mode takes images from the internet; here it takes ours, as its README says. Convoke's own is the operator's."""
        name = f"pipeline-template-{mode}"
        template = json.loads(self.get("configmaps", name, OPERATOR)["data"]["template.json"])
        for parameter in template["globalParameters"]:
            parameter["value"] = self.in_cluster("builder")
        self.api.merge("configmaps", OPERATOR, name, {"data": {"template.json": json.dumps(template)}})

    def first_files(self):
        source = {"gitSync": {}, "subfolder": "images/reviewer"}
        output = {"image": IMAGE, "insecure": True}
        build = {"source": source, "output": output, "buildArgs": {"BASE": self.in_cluster(self.base)}}
        agent = {"buildRef": "reviewer", "modelAPI": "open", "model": "small", "resources": team.LITTLE}
        agent["config"] = {"instructions": "You are the reviewer."}
        if self.base == "web-shell":
            agent["env"] = [{"name": "WEB_CARD", "value": json.dumps(team.card("reviewer"))}]
        objects = [
            {"kind": "AgentBuild", "metadata": {"name": "reviewer"}, "spec": build},
            {"kind": "Agent", "metadata": {"name": "reviewer"}, "spec": agent},
            team.ours("ModelAPI", "open", mode="External", external={"url": MODEL_URL}),
        ]
        head = {"apiVersion": "convoke.dev/v1alpha1"}
        files = {f"{one['kind'].lower()}.json": json.dumps(head | one, indent=1) for one in objects}
        return files | {f"{SOURCE}/Dockerfile": DOCKERFILE, f"{SOURCE}/note": "one\n"}

    def appended_files(self, note):
        """An AgentBuild without a Dockerfile, its source, and an Agent of it. They are called `appended`."""
        build = {
            "strategy": "Append",
            "append": {"baseImage": self.in_cluster("agent")},
            "source": {"gitSync": {}, "subfolder": "images/appended"},
            "output": {"image": f"{NAMESPACE}/appended", "insecure": True},
        }
        agent = {"buildRef": "appended", "modelAPI": "open", "model": "small", "resources": team.LITTLE}
        head = {"apiVersion": "convoke.dev/v1alpha1", "metadata": {"name": "appended"}}
        return {
            "appended-build.json": json.dumps(head | {"kind": "AgentBuild", "spec": build}),
            "appended-agent.json": json.dumps(head | {"kind": "Agent", "spec": agent}),
            f"{APPENDED}/note": note,
            f"{APPENDED}/lib/x.py": "X = 1\n",
        }

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

    def private_registry(self):
        """A registry over TLS that asks for user and password, where pods reach it.

        Gives its host and port, and the file of the authority that has signed its certificate.
        """
        folder = self.state / "private-registry"
        folder.mkdir()
        self.make_certificates(folder)
        (folder / "htpasswd").write_text(f"pusher:{PASSWORD_HASH}\n")
        with socket.socket() as free:
            free.bind((self.machine(), 0))
            address = f"{self.machine()}:{free.getsockname()[1]}"
        config = {
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
            "http": {"addr": address, "tls": {"certificate": str(folder / "server.crt"), "key": str(folder / "server.key")}},
            "auth": {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}},
        }
        (folder / "config.yml").write_text(json.dumps(config))
        program = shutil.which("docker-registry") or shutil.which("registry")
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(
                [program, "serve", str(folder / "config.yml")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={"OTEL_TRACES_EXPORTER": "none"},
            )
        unittest.addModuleCleanup(server.wait, 20)
        unittest.addModuleCleanup(server.terminate)
        self.eventually("the registry listens", lambda: self.listens(address), 20)
        return address, folder / "ca.crt"

    def make_certificates(self, folder):
        """An authority that nobody knows, and a certificate for this machine that it has signed."""
        (folder / "openssl.cnf").write_text("[req]\ndistinguished_name = name\n[name]\n")
        signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE"]
        server = [*signed, "-addext", f"subjectAltName=IP:{self.machine()}", "-addext", "extendedKeyUsage=serverAuth"]
        authority = ["-addext", "basicConstraints=critical,CA:TRUE"]
        for name, subject, extensions in (("ca", "/CN=authority of tests", authority), ("server", "/CN=registry", server)):
            kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
            files = ["-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", subject]
            command = ["openssl", "req", "-x509", "-config", "openssl.cnf", *kind, *files, *extensions]
            subprocess.run(command, cwd=folder, check=True, capture_output=True)

    def listens(self, address):
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=5).close()
        return True

    def note(self):
        """What is in the image that the agent runs."""
        (pod,) = self.pods("agent", "reviewer")
        return self.kubectl("-n", NAMESPACE, "exec", pod["metadata"]["name"], "--", "cat", "/note").strip()


stage = BuildStage()
