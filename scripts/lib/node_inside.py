#!/usr/bin/env python3
"""The inside of a cluster with a node: process 1 of the namespaces that node.py makes.

Reads one line of JSON from standard input (what `Node` lists), sets up mounts and network, starts the control
plane and the parts of the node, prints one line of JSON when a pod could run, and ends when standard input ends
or a process of the cluster does. Its end is the end of every process, mount and interface in here: the kernel
sees to that, in whatever way it comes.

What is in the namespaces is an own machine as far as the node's programs can tell. Their usual folders are ours:

    /run        empty at every start; /run/cluster is the cluster's state folder, /run/bin its programs
    /var/lib    cluster/node/lib: images and containers, the kubelet's files, the registry's content
    /var/log    cluster/node/log: the logs of the pods

All other files are the machine's.

SIGUSR1 restarts it, as a machine that was reset: every process is killed, and what is in memory only is gone.

Standard library only, Python 3.11 or newer, Linux.
"""

import ctypes
import errno
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import node_files
import oci
from cgroups import Cgroups
from control_plane import LIBC, ControlPlane, Failed, write_secret
from node_files import API_PORT, DNS_READY_PORT, NODE, PAUSE_IMAGE, REGISTRY_PORT

MS_BIND, MS_REC, MS_SHARED = 0x1000, 0x4000, 0x100000
MNT_DETACH = 2

# What the kubelet insists on, and would set for the whole machine: it finds these files in place of the settings.
KERNEL_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}


def run(*command, text=None):
    """Runs a command to its end. Raises Failed with what it said."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def mount(source, over, kind="", flags=0, options=""):
    """mount(2). The command mount(8) would leave notes in the machine's /run."""
    if LIBC.mount(str(source).encode(), str(over).encode(), kind.encode(), flags, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot mount {source} on {over}: {os.strerror(number)}")


def bind(source, over):
    """Shows one file or folder in the place of another."""
    mount(source, over, flags=MS_BIND)


def make_machine(options):
    """Mounts what makes the namespaces look like a machine of their own. Gives the state folder's place in it."""
    # Mounts of a container are seen by the kubelet and the other way round, and by nobody outside.
    mount("none", "/", flags=MS_REC | MS_SHARED)
    # By descriptor: they may lie below the folders that are about to be hidden.
    state = os.open(options["state"], os.O_PATH)
    programs = {name: os.open(path, os.O_PATH) for name, path in options["programs"].items()}
    runtime = os.open(options["runtime"], os.O_PATH) if options["runtime"] else None
    node = Path("/run/cluster/node")
    mount("tmpfs", "/run", "tmpfs", options="mode=0755")
    Path("/run/cluster").mkdir()
    bind(f"/proc/{os.getpid()}/fd/{state}", "/run/cluster")
    os.close(state)
    Path("/run/bin").mkdir()
    for name, program in programs.items():
        (Path("/run/bin") / name).touch()
        bind(f"/proc/{os.getpid()}/fd/{program}", f"/run/bin/{name}")
        os.close(program)
    if runtime is not None:
        # The folder and not its files: runc runs from an overlay of the folder that it is in, which would not show them.
        Path("/run/runtime").mkdir()
        bind(f"/proc/{os.getpid()}/fd/{runtime}", "/run/runtime")
        os.close(runtime)
        os.environ["PATH"] = f"/run/runtime:{os.environ['PATH']}"
        # A user namespace may mount `proc` only where one is with nothing mounted over it: that in /proc is not.
        Path("/run/proc").mkdir()
        mount("proc", "/run/proc", "proc")
    for name in ("lib", "log"):
        (node / name).mkdir(parents=True)
        bind(node / name, f"/var/{name}")
    for name in ("lib/tmp", "lib/kubelet", "lib/registry"):
        (Path("/var") / name).mkdir()
    os.environ["TMPDIR"] = "/var/lib/tmp"
    for name, value in KERNEL_SETTINGS.items():
        setting = Path("/proc/sys") / name
        if setting.exists():
            stand_in = Path("/run/settings") / name
            stand_in.parent.mkdir(parents=True, exist_ok=True)
            stand_in.write_text(f"{value}\n")
            bind(stand_in, setting)
    return Path("/run/cluster")


def unmount_below(folders):
    """Removes all mounts below these folders, the newest first."""
    while True:
        mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        mounted = [place for place in mounted if place.startswith(tuple(f"{folder}/" for folder in folders))]
        if not mounted:
            return
        for place in reversed(mounted):
            # One of those that show the same goes with another one.
            if LIBC.umount2(place.encode(), MNT_DETACH) != 0 and ctypes.get_errno() not in (errno.EINVAL, errno.ENOENT):
                raise OSError(ctypes.get_errno(), f"cannot unmount {place}")


def make_network(options):
    """Brings up the link to the machine, whose end is there already."""
    run("hostname", NODE)
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{options['address']}/30", "dev", "eth0")
    run("ip", "link", "set", "eth0", "up")
    run("ip", "route", "add", "default", "via", options["gateway"])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    filter_packets()


def filter_packets():
    """Gives the kernel the rules for packets that are the node's own; kube-proxy has others."""
    run("nft", "-f", "-", text=node_files.NFTABLES)
    run("iptables-restore", text=node_files.FIREWALL)


def snapshotter():
    """How containerd stacks the layers of images: not every file system can lie below an overlay."""
    folder = Path("/var/lib/tmp/overlay")
    parts = {part: folder / part for part in ("lower", "upper", "work", "merged")}
    for part in parts.values():
        part.mkdir(parents=True)
    stack = ",".join(f"{name}dir={parts[name]}" for name in ("lower", "upper", "work"))
    try:
        mount("overlay", parts["merged"], "overlay", options=stack)
    except OSError:
        return "native"
    LIBC.umount2(str(parts["merged"]).encode(), 0)
    shutil.rmtree(folder)
    return "overlayfs"


class Node(ControlPlane):
    """The control plane and the parts of a node, in one network namespace.

    `options` has the state folder and our own programs (name: path) as the machine knows them (`state`,
    `programs`), the addresses of the node and of the machine's end of the link (`address`, `gateway`), the cgroup
    below which those of all pods are (`cgroup`), the folder of the CNI plugins (`cni`), the command that is the
    registry (`registry`) and whether requests are recorded (`audit`). `runtime` is the folder of a containerd 2 that
    runs in place of the machine's, or None. Definitions to install are in node/crds.json.
    """

    authorization_mode = "Node,RBAC"
    ready_seconds = 150
    users = ControlPlane.users | {
        "kubelet": (f"system:node:{NODE}", "system:nodes"),
        "scheduler": ("system:kube-scheduler", ""),
        "proxy": ("system:kube-proxy", ""),
        "dns": ("system:coredns", ""),
        "network": ("system:network-policies", ""),
    }

    def __init__(self, state, options):
        crds = state / "node/crds.json"
        super().__init__(Path("/run/bin"), state, crds if crds.exists() else None, options["audit"])
        self.options = options
        self.address = options["address"]

    def choose_port(self):
        return API_PORT

    def more_api_server_arguments(self):
        return [
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
            "--kubelet-certificate-authority=/run/keys/ca.crt",
            "--kubelet-client-certificate=/run/keys/api-server.crt",
            "--kubelet-client-key=/run/keys/api-server.key",
        ]

    def make_keys(self):
        """Certificates for the way from the API server to the kubelet, in memory only."""
        keys = Path("/run/keys")
        keys.mkdir(mode=0o700)
        (keys / "openssl.cnf").write_text("[req]\ndistinguished_name = name\n[name]\n")
        signed = ["-CA", "ca.crt", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE"]
        authority = ["-addext", "basicConstraints=critical,CA:TRUE"]
        server = ["-addext", f"subjectAltName=IP:{self.address}", "-addext", "extendedKeyUsage=serverAuth"]
        client = ["-addext", "extendedKeyUsage=clientAuth"]
        for name, subject, extensions in (
            ("ca", "/CN=convoke-node", authority),
            ("kubelet", f"/CN={NODE}", signed + server),
            ("api-server", "/O=system:masters/CN=kube-apiserver", signed + client),
        ):
            kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3650"]
            files = ["-keyout", f"{name}.key", "-out", f"{name}.crt", "-subj", subject]
            command = ["openssl", "req", "-x509", "-config", "openssl.cnf", *kind, *files, *extensions]
            made = subprocess.run(command, cwd=keys, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                raise Failed(f"openssl cannot make certificates (OpenSSL 3 is needed): {made.stderr.strip()}")

    def write_configuration(self):
        """Writes what the programs of the node read, except for what needs the API server."""
        options = self.options
        containerd = node_files.CONTAINERD_2 if options["runtime"] else node_files.CONTAINERD
        texts = node_files.files(self.address, options["cgroup"], options["cni"], snapshotter(), containerd)
        for name, text in texts.items():
            path = self.state / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def start_node(self):
        """Starts all and returns once a pod could run."""
        deadline = time.monotonic() + self.ready_seconds
        self.make_keys()
        self.write_configuration()
        self.spawn("containerd", ["--config", "containerd.toml"], "containerd")
        self.spawn("registry", ["serve", "registry.yaml"], self.options["registry"])
        self.start()
        for name in ("kubelet", "scheduler", "proxy", "dns", "network"):
            write_secret(self.state / f"{name}.kubeconfig", self.kubeconfig(name))
        self.import_pause_image(deadline)
        self.spawn(
            "kubelet",
            [
                "--config=kubelet.json",
                "--kubeconfig=kubelet.kubeconfig",
                f"--hostname-override={NODE}",
                f"--node-ip={self.address}",
            ],
        )
        self.spawn("kube-scheduler", ["--kubeconfig=scheduler.kubeconfig", "--leader-elect=false", "--secure-port=0"])
        self.spawn("kube-proxy", ["--config=proxy.json"])
        for path, document in node_files.objects(self.address):
            self.apply(path, document)
        self.spawn("coredns", ["-conf", "Corefile"])
        self.spawn("network-policies", node_files.NETWORK_POLICIES)
        self.wait(f"/api/v1/nodes/{NODE}", deadline, node_is_ready)
        self.wait_for_url(f"http://{self.address}:{DNS_READY_PORT}/ready", deadline)
        self.wait_for_url(f"http://{self.address}:{REGISTRY_PORT}/v2/", deadline)

    def restart(self):
        """What a reset of the machine does: nothing is told to anybody, and what is on disk starts again."""
        # All but this process: it is the first one of its namespace.
        os.kill(-1, signal.SIGKILL)
        for child in self.children.values():
            child.wait()
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
        # The kubelet would look at each one that is left for seconds.
        cgroups = Cgroups(self.options["cgroup"].removeprefix("/"))
        cgroups.remove()
        cgroups.make()
        unmount_below(("/var/lib/kubelet", "/run/containerd", "/run/netns"))
        for folder in ("/run/containerd", "/run/netns"):
            shutil.rmtree(folder, ignore_errors=True)
        run("nft", "flush", "ruleset")
        filter_packets()
        for name in ("etcd.sock:0", "peer.sock:0"):
            (self.state / name).unlink(missing_ok=True)
        deadline = time.monotonic() + self.ready_seconds
        commands, self.children = dict(self.commands), {}
        # In the order of the first start. Two of them give up when whom they need does not answer yet.
        for name, command in commands.items():
            if name == "kube-controller-manager":
                self.wait("/readyz", deadline)
            if name == "kubelet":
                self.import_pause_image(deadline)
            self.spawn(name, *command)

    def import_pause_image(self, deadline):
        """Gives containerd the image of every pod's first container."""
        archive = Path("/run/pause.tar")
        oci.Image({"pause": self.binaries / "pause"}, entrypoint=["/pause"]).write_archive(archive, PAUSE_IMAGE)
        while True:
            self.check_alive()
            try:
                run("ctr", "--timeout", "5s", "--namespace", "k8s.io", "images", "import", str(archive))
                return
            except Failed:
                # containerd does not listen yet, most likely.
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def apply(self, path, document):
        """Server-side apply as admin."""
        path = f"{path}/{document['metadata']['name']}?fieldManager=convoke&force=true"
        try:
            self.request(path, "PATCH", json.dumps(document).encode(), "application/apply-patch+yaml")
        except urllib.error.HTTPError as error:
            raise Failed(f"the API server refuses {path}: {error.read().decode()}") from error

    def wait_for_url(self, url, deadline):
        """Waits until GET URL (plain http, no proxy) succeeds."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        last = "no answer yet"
        while time.monotonic() < deadline:
            self.check_alive()
            try:
                opener.open(url, timeout=5).close()
                return
            except OSError as error:
                last = str(error)
            time.sleep(0.05)
        raise Failed(f"{url} does not answer as it should: {last}")


def node_is_ready(text):
    """Whether a Node (JSON) has the condition Ready."""
    conditions = json.loads(text).get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def reap(node):
    """Takes the exit status of processes that lost their parent. Those of `node.children` are left to it."""
    own = {child.pid for child in node.children.values()}
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in own:
            return
        os.waitpid(ended.si_pid, 0)


def supervise(node):
    """Returns when standard input ends. Raises when a process of the cluster died."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, lambda *_: None)
    while True:
        node.check_alive()
        reap(node)
        readable, _, _ = select.select([wake_read, 0], [], [])
        if wake_read in readable and signal.SIGUSR1 in os.read(wake_read, 4096):
            node.restart()
        if 0 in readable and not os.read(0, 4096):
            return


def main():
    # Now the namespaces exist, and the supervisor makes the link.
    print("{}", flush=True)
    options = json.loads(sys.stdin.buffer.readline())
    code = 0
    try:
        state = make_machine(options)
        make_network(options)
        node = Node(state, options)
        node.start_node()
        print(json.dumps({"server": node.server(), "registry": f"{node.address}:{REGISTRY_PORT}"}), flush=True)
        supervise(node)
    except (Failed, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        code = 1
    # The kernel ends all that is left: there is nothing in it to save.
    sys.exit(code)


if __name__ == "__main__":
    main()
