#!/usr/bin/env python3
"""Runs one cluster with a node, where pods run, in namespaces of its own. Needs root.

    node.py --bin DIR --state DIR [--crds FILE] [--audit] [--until-stdin-closes]
                                  start, and supervise until SIGTERM; prints one line of JSON when it is ready. The
                                  options are those of control_plane.py
    node.py --state DIR --clean   remove what a killed supervisor left behind

All processes of the cluster (node_inside.py starts them) are in own PID, mount, network, UTS and IPC namespaces.
When the first of them ends, the kernel kills the others, and mounts, interfaces and packet rules go with the last.
The first one dies with this supervisor, however that dies. What the kernel does not take back by itself is removed
here, now or by the next start: the cgroups of the pods, and this machine's end of the link.

    link      cvkXXXXXXXX, with the first free network of 10.197.N.0/30: .1 here, .2 there
    cgroups   /convoke-XXXXXXXX in each hierarchy

XXXXXXXX is made from the path of the state folder. What is in that: control_plane.py; beside it

    node/     everything of the node, removed when it stops; node/first tells which process is the first one

Standard library only, Python 3.11 or newer, Linux.
"""

import argparse
import fcntl
import hashlib
import ipaddress
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from cgroups import Cgroups, kill
from control_plane import LIBC, PR_SET_PDEATHSIG, Failed
from supervisor import ignore_signals, own, quit_on_signals

READY_SECONDS = 180
END_SECONDS = 10
NETWORKS = ipaddress.ip_network("10.197.0.0/16")
CNI_FOLDERS = ("/usr/lib/cni", "/opt/cni/bin")
REGISTRIES = ("docker-registry", "registry")
PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "coredns",
    "network-policies",
    "pause",
)
# Without these of a root's capabilities containers cannot be made (capabilities(7)).
CAPABILITIES = {
    0: "CHOWN",
    1: "DAC_OVERRIDE",
    3: "FOWNER",
    5: "KILL",
    6: "SETGID",
    7: "SETUID",
    8: "SETPCAP",
    12: "NET_ADMIN",
    18: "SYS_CHROOT",
    19: "SYS_PTRACE",
    21: "SYS_ADMIN",
    27: "MKNOD",
}


def started_at(pid):
    """When a living process started, in ticks since boot; None when there is none, or only its exit status."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def ip(*arguments):
    """Runs ip(8). Raises Failed with what it said."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Machine:
    """What a cluster with a node uses of this machine outside its own namespaces."""

    def __init__(self, state):
        self.state = state
        self.folder = state / "node"
        suffix = hashlib.sha256(str(state).encode()).hexdigest()[:8]
        self.link = f"cvk{suffix}"
        self.cgroups = Cgroups(f"convoke-{suffix}")

    def check(self):
        """Raises Failed with what this machine lacks."""
        if os.geteuid() != 0:
            raise Failed("a node needs root, and so does removing what one left behind")
        status = Path("/proc/self/status").read_text()
        have = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
        missing = [name for bit, name in CAPABILITIES.items() if not have >> bit & 1]
        if missing:
            raise Failed(
                f"a node needs the capabilities {', '.join(missing)}, which root doesn't have here: "
                "a container must be privileged"
            )
        if not os.access("/proc/sys/net/ipv4/ip_forward", os.W_OK):
            raise Failed("/proc/sys is read-only: a container must be privileged")

    def clean(self):
        """Ends and removes what is left of a cluster whose supervisor is gone."""
        try:
            first = json.loads((self.folder / "first").read_text())
        except (OSError, ValueError):
            first = None
        if first:
            # It is gone when all in its PID namespace are.
            deadline = time.monotonic() + END_SECONDS
            while started_at(first["pid"]) == first["started"]:
                kill(first["pid"])
                if time.monotonic() > deadline:
                    raise Failed(f"process {first['pid']}, the first one of the node, does not end")
                time.sleep(0.02)
        if Path("/sys/class/net", self.link).exists():
            try:
                ip("link", "delete", self.link)
            except Failed:
                # It goes by itself when the other end does.
                if Path("/sys/class/net", self.link).exists():
                    raise
        self.cgroups.remove()
        for name in ("node", "etcd", "certs"):
            shutil.rmtree(self.state / name, ignore_errors=True)
        for name in ("tokens.csv", "service-accounts.key", "kubeconfig"):
            (self.state / name).unlink(missing_ok=True)
        for path in self.state.glob("*.kubeconfig"):
            path.unlink()
        # Last, and only then: it says that there is something to clean.
        if self.folder.exists():
            raise Failed(f"cannot remove {self.folder}")

    def connect(self, pid):
        """Makes the link to the network namespace of a process; gives the addresses there and here."""
        # Others choose networks, too: one at a time, until the address is taken. /run is there on every Linux.
        lock = os.open("/run", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            here, there = free_network()
            ip("link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
            ip("address", "add", f"{here}/30", "dev", self.link)
            ip("link", "set", self.link, "up")
        finally:
            os.close(lock)
        return there, here


def free_network():
    """The two addresses of the first network of ours that overlaps no route and no address of this machine."""
    taken = [route["dst"] for route in json.loads(ip("-json", "-4", "route", "show", "table", "all"))]
    taken = [ipaddress.ip_network(name, strict=False) for name in taken if name != "default"]
    # A route of a whole site (10.0.0.0/8 of a VPN) is in nobody's way: the narrower one of ours goes before it.
    taken = [network for network in taken if network.prefixlen >= NETWORKS.prefixlen]
    for network in NETWORKS.subnets(new_prefix=24):
        network = next(network.subnets(new_prefix=30))
        if not any(network.overlaps(other) for other in taken):
            here, there = network.hosts()
            return str(here), str(there)
    raise Failed(f"all networks of {NETWORKS} overlap routes of this machine")


class Inside:
    """The processes of the cluster, in their namespaces."""

    def __init__(self, machine, binaries, crds=None, audit=False):
        self.machine = machine
        self.crds = crds
        self.audit = audit
        self.programs = {}
        for name in PROGRAMS:
            path = (binaries / name).resolve()
            if not path.exists():
                raise Failed(f"{path} is missing")
            self.programs[name] = str(path)
        # The folder of a containerd that goes before the distribution's, with its other programs and its runc.
        containerd = (binaries / "containerd").resolve()
        self.runtime = str(containerd.parent) if containerd.exists() else None
        self.cni = next((folder for folder in CNI_FOLDERS if Path(folder, "ptp").exists()), None)
        self.registry = next((name for name in REGISTRIES if shutil.which(name)), None)
        if not self.cni or not self.registry:
            raise Failed("the CNI plugins or the registry are missing (scripts/cluster up --node says what to install)")
        # This machine's address, as the node knows it.
        self.gateway = None
        self.process = None
        self.output = b""

    def start(self):
        """Starts all; gives what the first process says when a pod could run."""
        parent = os.getpid()

        def die_with_parent():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

        self.process = subprocess.Popen(
            [
                *("unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--mount-proc", "--fork", "--kill-child"),
                *(sys.executable, "-B", str(Path(__file__).with_name("node_inside.py"))),
            ],
            cwd="/",
            # Of the caller's only how often Go collects garbage: proxies would be asked for addresses of the node.
            env={"PATH": os.environ["PATH"], "HOME": "/root", "LANG": "C.UTF-8", "GOGC": os.environ.get("GOGC", "100")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,
            process_group=0,
        )
        deadline = time.monotonic() + READY_SECONDS
        # It has begun: the namespaces exist, and unshare has one child, the first process in them.
        self.line(deadline)
        pid = self.process.pid
        first = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
        record = {"pid": first, "started": started_at(first)}
        (self.machine.folder / "first").write_text(json.dumps(record))
        address, self.gateway = self.machine.connect(pid)
        options = {
            "state": str(self.machine.state),
            "programs": self.programs,
            "address": address,
            "gateway": self.gateway,
            "cgroup": f"/{self.machine.cgroups.name}",
            "runtime": self.runtime,
            "cni": self.cni,
            "registry": self.registry,
            "audit": self.audit,
        }
        if self.crds:
            # To where the inside sees it, wherever it was.
            shutil.copy(self.crds, self.machine.folder / "crds.json")
        self.process.stdin.write(json.dumps(options).encode() + b"\n")
        self.process.stdin.flush()
        return self.line(deadline)

    def line(self, deadline):
        """The next line of JSON that the first process prints."""
        while b"\n" not in self.output:
            readable, _, _ = select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))
            if not readable:
                raise Failed(f"the node is not ready after {READY_SECONDS} s")
            more = os.read(self.process.stdout.fileno(), 4096)
            if not more:
                raise Failed("the node did not start")
            self.output += more
        line, _, self.output = self.output.partition(b"\n")
        return json.loads(line)

    def wait(self, until_stdin_closes):
        """Returns when our standard input ends, if that is asked for. Raises Failed when the node ends by itself."""
        output = self.process.stdout.fileno()
        watched = [output] + ([0] if until_stdin_closes else [])
        while True:
            readable, _, _ = select.select(watched, [], [])
            if output in readable and not os.read(output, 4096):
                raise Failed("the node ended")
            if 0 in readable and not os.read(0, 4096):
                return

    def stop(self):
        """Ends all processes."""
        if self.process is None:
            return
        # The first process ends with its standard input.
        self.process.stdin.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=Path, help="folder of the programs that are built from source")
    parser.add_argument("--state", required=True, type=Path, help="folder of everything that it writes")
    parser.add_argument("--crds", type=Path, help="JSON array of definitions to install before the controllers start")
    parser.add_argument("--audit", action="store_true", help="write audit.log")
    parser.add_argument("--until-stdin-closes", action="store_true", help="then stop, and remove the state folder")
    parser.add_argument("--clean", action="store_true", help="only remove what a killed supervisor left")
    options = parser.parse_args()
    if not options.clean and options.bin is None:
        parser.error("--bin is required")

    state = options.state.resolve()
    own(state)
    quit_on_signals()
    machine = Machine(state)
    inside = None
    code = 0
    began = time.monotonic()
    try:
        machine.check()
        machine.clean()
        if not options.clean:
            inside = Inside(machine, options.bin, options.crds, options.audit)
            machine.folder.mkdir()
            machine.cgroups.make()
            ready = inside.start()
            ready = {
                "pid": os.getpid(),
                "kubeconfig": str(state / "kubeconfig"),
                "server": ready["server"],
                "registry": ready["registry"],
                "machine": inside.gateway,
                "seconds": round(time.monotonic() - began, 1),
            }
            print(json.dumps(ready), flush=True)
            inside.wait(options.until_stdin_closes)
    except KeyboardInterrupt:
        pass
    except (Failed, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        code = 1
    ignore_signals()
    try:
        if inside is not None:
            inside.stop()
            machine.clean()
        if options.until_stdin_closes:
            shutil.rmtree(state, ignore_errors=True)
    except (Failed, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
