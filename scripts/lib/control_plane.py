#!/usr/bin/env python3
"""Runs one Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager) on loopback.

    control_plane.py --bin DIR --state DIR [--crds FILE] [--audit] [--until-stdin-closes]

The process is the cluster's supervisor: it starts the three, prints one line of JSON when they are ready, and
stops them when it gets SIGTERM, when one of them dies or, with --until-stdin-closes, when its standard input
ends. The last is how tests use it: their end of the pipe closes however they die, SIGKILL included, and then
the state folder is removed too. Until then it obeys four lines there, and prints `done` after each: `save` keeps a backup of etcd, and
`restore` stops all three and starts them from it; `mark` remembers what the API server has, and `reset` brings it back while all three
run (etcd_state.py). When the supervisor itself is killed, the kernel kills its children.

Every start is an empty cluster. What is in the state folder while it runs:

    lock         held (flock) by the living supervisor, holds its pid
    kubeconfig   cluster-admin
    audit.log    with --audit: two lines a request made by a ServiceAccount outside kube-system, when it is received and when it is done
    *.log        one a process; they stay after the stop

Standard library only, Python 3.11 or newer, Linux.
"""

import argparse
import base64
import ctypes
import json
import os
import random
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from etcd_state import Etcd
from supervisor import ignore_signals, own, quit_on_signals

STOP_SECONDS = 5
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)

AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
rules:
- level: None
  userGroups: ["system:serviceaccounts:kube-system"]
- level: Metadata
  userGroups: ["system:serviceaccounts"]
- level: None
"""


class Failed(Exception):
    """The control plane cannot start or stopped by itself; the text says why."""


class Clash(Failed):
    """The port that looked free was taken by somebody else in the meantime."""


def free_port():
    """A free loopback port below the range from which the kernel takes ports for outgoing connections."""
    while True:
        port = random.randint(20000, 31999)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def write_secret(path, text):
    """Writes a file that only its owner may read, whatever the umask says."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text)


def kubeconfig(server, ca_file, token):
    """A kubeconfig (JSON is YAML) that verifies the certificate of the server (https://ADDRESS:PORT)."""
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "convoke",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": authority,
                    },
                }
            ],
            "users": [{"name": "convoke", "user": {"token": token}}],
            "contexts": [{"name": "convoke", "context": {"cluster": "convoke", "user": "convoke"}}],
            "current-context": "convoke",
        },
        indent=1,
    )


def established(text):
    """Whether a CustomResourceDefinition (JSON) is served."""
    # A definition that was just made may say null instead of nothing.
    conditions = (json.loads(text).get("status") or {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


class ControlPlane:
    """The three processes and their state folder. A cluster with a node (node_inside.py) adds to it."""

    # Where the API server listens.
    address = "127.0.0.1"
    authorization_mode = "RBAC"
    # How long a start may take.
    ready_seconds = 60
    # Who has a token: the user and, after it, the groups.
    users = {
        "admin": ("admin", "system:masters"),
        "manager": ("system:kube-controller-manager", ""),
    }

    def __init__(self, binaries, state, crds=None, audit=False):
        self.binaries = binaries
        self.state = state
        self.crds = crds
        self.audit = audit
        self.client = None
        self.port = 0
        self.children = {}
        self.commands = {}
        self.marked = {}
        self.tokens = {name: os.urandom(24).hex() for name in self.users}

    def choose_port(self):
        """The port of the next attempt to start the API server."""
        return free_port()

    def more_api_server_arguments(self):
        """Arguments of the API server beside its usual ones."""
        return []

    def server(self):
        """The API server's URL."""
        return f"https://{self.address}:{self.port}"

    def kubeconfig(self, name):
        """The kubeconfig of one of the users."""
        return kubeconfig(self.server(), self.state / "certs/apiserver.crt", self.tokens[name])

    def spawn(self, name, arguments, program=None):
        """Starts one process in the state folder; its output goes to NAME.log. The program has the same name."""
        parent = os.getpid()
        self.commands[name] = (arguments, program)

        def die_with_parent():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

        with open(self.state / f"{name}.log", "wb") as log:
            self.children[name] = subprocess.Popen(
                [program or str(self.binaries / name), *arguments],
                cwd=self.state,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,
                # Own group: Ctrl-C in a terminal reaches the supervisor only, which stops them in order.
                process_group=0,
            )

    def prepare(self):
        """Empties the state folder and writes keys, tokens and the audit policy."""
        for name in ("etcd", "certs"):
            shutil.rmtree(self.state / name, ignore_errors=True)
        for name in ("audit.log", "kubeconfig", "etcd.sock:0", "peer.sock:0"):
            (self.state / name).unlink(missing_ok=True)
        made = subprocess.run(["openssl", "genrsa", "2048"], capture_output=True, check=True, text=True)
        write_secret(self.state / "service-accounts.key", made.stdout)
        write_secret(
            self.state / "tokens.csv",
            "".join(
                f"{self.tokens[name]},{user},{name}" + (f',"{groups}"\n' if groups else "\n")
                for name, (user, groups) in self.users.items()
            ),
        )
        (self.state / "audit-policy.yaml").write_text(AUDIT_POLICY)

    def start(self):
        """Starts everything and returns once the API server is ready and the controllers work."""
        deadline = time.monotonic() + self.ready_seconds
        self.prepare()
        # Sockets in the state folder (mode 0700), named relative to it because a socket's path is at most 107
        # bytes: nobody else on the machine reaches etcd, which knows no passwords here, and no port can clash.
        self.spawn(
            "etcd",
            [
                "--name=convoke",
                "--data-dir=etcd",
                "--listen-client-urls=unix://etcd.sock:0",
                "--advertise-client-urls=unix://etcd.sock:0",
                "--listen-peer-urls=unix://peer.sock:0",
                "--initial-advertise-peer-urls=unix://peer.sock:0",
                "--initial-cluster=convoke=unix://peer.sock:0",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
        )
        for attempt in range(3):
            try:
                self.start_api_server(deadline)
                break
            except Clash:
                if attempt == 2:
                    raise
        self.wait("/readyz", deadline)
        # Before the garbage collector starts: it learns of later kinds only every 30 s.
        self.install_crds(deadline)
        write_secret(self.state / "manager.kubeconfig", self.kubeconfig("manager"))
        self.spawn(
            "kube-controller-manager",
            [
                "--kubeconfig=manager.kubeconfig",
                "--service-account-private-key-file=service-accounts.key",
                "--root-ca-file=certs/apiserver.crt",
                "--use-service-account-credentials",
                "--leader-elect=false",
                "--secure-port=0",
                # With the defaults 300 Deployments need 70 s to settle, with these 2 s.
                "--kube-api-qps=2000",
                "--kube-api-burst=4000",
                "--concurrent-deployment-syncs=20",
                "--concurrent-replicaset-syncs=20",
            ],
        )
        # Made by the controller manager: it works.
        self.wait("/api/v1/namespaces/default/serviceaccounts/default", deadline)
        write_secret(self.state / "kubeconfig", self.kubeconfig("admin"))

    def start_api_server(self, deadline):
        """Starts the API server on a free port and waits until it has written its certificate and listens."""
        shutil.rmtree(self.state / "certs", ignore_errors=True)
        self.port = self.choose_port()
        audit = [
            "--audit-policy-file=audit-policy.yaml",
            "--audit-log-path=audit.log",
            # A request is in the file when it is received and once more when it is done: tests count writes exactly.
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=100000",
        ]
        self.spawn(
            "kube-apiserver",
            [
                "--etcd-servers=unix://etcd.sock:0",
                "--cert-dir=certs",
                f"--bind-address={self.address}",
                f"--secure-port={self.port}",
                "--service-account-key-file=service-accounts.key",
                "--service-account-signing-key-file=service-accounts.key",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--token-auth-file=tokens.csv",
                f"--authorization-mode={self.authorization_mode}",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--allow-privileged",
                *(audit if self.audit else []),
                *self.more_api_server_arguments(),
            ],
        )
        certificate = self.state / "certs/apiserver.crt"
        key = self.state / "certs/apiserver.key"
        while True:
            try:
                self.check_alive()
            except Failed as error:
                log = (self.state / "kube-apiserver.log").read_text(errors="replace")
                if "address already in use" in log:
                    raise Clash(str(error)) from error
                raise
            # The key is written last.
            if certificate.exists() and key.exists() and key.stat().st_size > 0:
                return
            if time.monotonic() > deadline:
                raise Failed(f"the API server wrote no certificate within {self.ready_seconds} s")
            time.sleep(0.02)

    def request(self, path, method="GET", body=None, content_type="application/json"):
        """One request as admin; gives the reply's text. Raises OSError (URLError, HTTPError) when it fails."""
        if self.client is None:
            context = ssl.create_default_context(cafile=str(self.state / "certs/apiserver.crt"))
            # An address of this machine is never reached through a proxy.
            self.client = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
            )
        request = urllib.request.Request(
            f"{self.server()}{path}",
            data=body,
            method=method,
            headers={"Authorization": f"Bearer {self.tokens['admin']}", "Content-Type": content_type},
        )
        with self.client.open(request, timeout=5) as reply:
            return reply.read().decode()

    def wait(self, path, deadline, good=lambda text: True):
        """Waits until GET PATH succeeds with a good reply."""
        last = "no answer yet"
        while time.monotonic() < deadline:
            self.check_alive()
            try:
                text = self.request(path)
                if good(text):
                    return
                last = text
            except OSError as error:
                last = str(error)
            time.sleep(0.05)
        raise Failed(f"{path} is not as it should be in time: {last}")

    def install_crds(self, deadline):
        """Applies the definitions of the file (a JSON array) and waits until they are served."""
        crds = json.loads(self.crds.read_text()) if self.crds else []
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
        for crd in crds:
            name = crd["metadata"]["name"]
            try:
                self.request(
                    f"{path}{name}?fieldManager=convoke&force=true",
                    "PATCH",
                    json.dumps(crd).encode(),
                    "application/apply-patch+yaml",
                )
            except urllib.error.HTTPError as error:
                raise Failed(f"the API server refuses {name}: {error.read().decode()}") from error
        for crd in crds:
            self.wait(path + crd["metadata"]["name"], deadline, established)

    def save(self):
        """Keeps a copy of what etcd holds. It stands still meanwhile: the copy is what a crash would leave."""
        etcd = self.children["etcd"].pid
        os.kill(etcd, signal.SIGSTOP)
        try:
            while ") T " not in Path(f"/proc/{etcd}/stat").read_text():
                time.sleep(0.01)
            shutil.rmtree(self.state / "backup", ignore_errors=True)
            shutil.copytree(self.state / "etcd", self.state / "backup")
        finally:
            os.kill(etcd, signal.SIGCONT)

    def restore(self):
        """Starts the cluster anew as it was saved, at the same address."""
        self.stop(patient=False)
        shutil.rmtree(self.state / "etcd")
        shutil.copytree(self.state / "backup", self.state / "etcd")
        for name in ("etcd.sock:0", "peer.sock:0"):
            (self.state / name).unlink(missing_ok=True)
        self.children.clear()
        for name in ("etcd", "kube-apiserver"):
            self.spawn(name, *self.commands[name])
        self.wait("/readyz", time.monotonic() + self.ready_seconds)
        self.spawn("kube-controller-manager", *self.commands["kube-controller-manager"])

    def mark(self):
        """Remembers what the API server has now."""
        self.marked = Etcd(self.state).snapshot()

    def reset(self):
        """Brings that back. The processes go on."""
        Etcd(self.state).reset(self.marked)

    def check_alive(self):
        """Fails with the end of its log when one of the processes has ended."""
        for name, child in self.children.items():
            if child.poll() is not None:
                log = (self.state / f"{name}.log").read_text(errors="replace")
                end = "\n".join(log.splitlines()[-15:])
                raise Failed(f"{name} ended with {child.returncode}; the end of {self.state}/{name}.log:\n{end}")

    def stop(self, patient):
        """Stops all. etcd goes last: an API server that lost it hangs for minutes. Not patient: SIGKILL at once."""
        for name in ("kube-controller-manager", "kube-apiserver", "etcd"):
            child = self.children.get(name)
            if child is None or child.poll() is not None:
                continue
            if patient:
                child.terminate()
                try:
                    child.wait(STOP_SECONDS)
                    continue
                except subprocess.TimeoutExpired:
                    pass
            child.kill()
            child.wait()


def supervise(plane, until_stdin_closes):
    """Returns when it is time to stop. Raises when a process of the cluster died."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    watched = [wake_read] + ([0] if until_stdin_closes else [])
    while True:
        plane.check_alive()
        readable, _, _ = select.select(watched, [], [])
        if wake_read in readable:
            os.read(wake_read, 64)
        if 0 in readable:
            line = os.read(0, 4096)
            if not line:
                return
            orders = {b"save": plane.save, b"restore": plane.restore, b"mark": plane.mark, b"reset": plane.reset}
            order = orders.get(line.strip())
            if order:
                order()
                print("done", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, type=Path, help="folder of the three binaries")
    parser.add_argument("--state", required=True, type=Path, help="folder of everything that it writes")
    parser.add_argument("--crds", type=Path, help="JSON array of definitions to install before the controllers start")
    parser.add_argument("--audit", action="store_true", help="write audit.log")
    parser.add_argument("--until-stdin-closes", action="store_true", help="then stop, and remove the state folder")
    options = parser.parse_args()

    state = options.state.resolve()
    own(state)
    quit_on_signals()
    plane = ControlPlane(options.bin.resolve(), state, options.crds, options.audit)
    code = 0
    began = time.monotonic()
    try:
        plane.start()
        ready = {
            "pid": os.getpid(),
            "kubeconfig": str(state / "kubeconfig"),
            "server": plane.server(),
            "seconds": round(time.monotonic() - began, 1),
        }
        print(json.dumps(ready), flush=True)
        supervise(plane, options.until_stdin_closes)
    except KeyboardInterrupt:
        pass
    except Failed as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        code = 1
    finally:
        ignore_signals()
        plane.stop(patient=not options.until_stdin_closes)
        if options.until_stdin_closes:
            shutil.rmtree(state, ignore_errors=True)
        else:
            for name in ("etcd", "certs"):
                shutil.rmtree(state / name, ignore_errors=True)
            for name in ("kubeconfig", "manager.kubeconfig", "tokens.csv", "service-accounts.key"):
                (state / name).unlink(missing_ok=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
