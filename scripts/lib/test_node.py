"""What `scripts/cluster up --node` promises: pods run as they do elsewhere, and afterwards the machine is as before.

    cd scripts/lib && python3 -B -m unittest -v test_node        needs root; scripts/test runs it

Each class has a state folder of its own, so this runs beside a cluster of this checkout. Standard library only.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

import oci
from node import Machine, started_at
from node_files import NODE
from node_inside import KERNEL_SETTINGS

HERE = Path(__file__).resolve().parent
CLUSTER = HERE.parent / "cluster"
WORKLOAD = (HERE / "test_node.yaml").read_text()
APPLETS = ("sh", "httpd", "wget", "sleep", "id", "timeout")
UP_SECONDS = 240
POD_SECONDS = 90
# What the node's programs use when nobody stops them.
USUAL_FOLDERS = (
    "/run/containerd",
    "/run/mount",
    "/run/netns",
    "/run/runc",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)


def ours_or_nobodys(name):
    """Whether an interface is no link of another cluster, which may come and go meanwhile."""
    return not name.startswith("cvk")


def machine_now():
    """What a cluster could leave on the machine."""
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=False).stdout
    netns = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    return {
        "mounts": sorted(line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "interfaces": sorted(filter(ours_or_nobodys, os.listdir("/sys/class/net"))),
        "nftables": tables.splitlines(),
        "netns": netns.splitlines(),
        "settings": {name: Path("/proc/sys", name).read_text() for name in KERNEL_SETTINGS},
        "folders": [folder for folder in USUAL_FOLDERS if Path(folder).exists()],
    }


def namespaces(pid):
    """The namespaces of a process."""
    return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("pid", "net", "mnt")}


def processes_in(spaces):
    """The living processes that are in one of these namespaces: when each started, by pid and name."""
    found = {}
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if namespaces(pid) & spaces:
                found[pid, Path("/proc", pid, "comm").read_text().strip()] = started_at(pid)
        except OSError:
            continue
    return found


def run_script(script, *arguments, state, seconds, under=()):
    """Runs a script of this checkout, by the command `under`, on a state folder; gives what it printed and what it said.

    Raises AssertionError with the end of what it said when it fails.
    """
    done = subprocess.run(
        [*under, str(script), *arguments],
        env=os.environ | {"CONVOKE_STATE": str(state)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"scripts/{script.name} {' '.join(arguments)}: {done.stderr[-6000:]}")
    return done.stdout, done.stderr


def eventually(what, probe, seconds, pause=0.05, but_not=(AssertionError, OSError)):
    """What the probe gives as soon as it gives something without one of these errors."""
    deadline = time.monotonic() + seconds
    last = None
    while time.monotonic() < deadline:
        try:
            if found := probe():
                return found
            last = found
        except but_not as error:
            last = error
        time.sleep(pause)
    raise AssertionError(f"{what}: not in {seconds} s: {last}")


class Cluster:
    """One cluster with a node, in a temporary state folder."""

    # Of every kubectl command.
    options = ("--namespace=demo",)
    up_options = ("--node",)

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="convoke-node-"))
        self.state = self.folder / "state"
        self.kubeconfig = self.state / "kubeconfig"
        self.machine = Machine((self.state / "cluster").resolve())

    def command(self, *arguments, under=()):
        """scripts/cluster, run by the command `under`; gives what it says. Raises AssertionError when it fails."""
        try:
            return run_script(CLUSTER, *arguments, state=self.state, seconds=UP_SECONDS, under=under)[1]
        except AssertionError as error:
            raise AssertionError(f"{error}{self.logs()}") from error

    def logs(self):
        """The ends of the logs, for whoever looks for the reason of a failure."""
        ends = []
        for log in sorted(self.state.glob("cluster/*.log")):
            lines = log.read_text(errors="replace").splitlines()[-8:]
            ends.append(f"--- {log.name}\n" + "\n".join(lines))
        return "\n" + "\n".join(ends)

    def up(self):
        """Starts it and gives it an image; sets what is known of it only now."""
        self.command("up", *self.up_options)
        ready = json.loads((self.state / "cluster/ready").read_text())
        self.supervisor, self.registry = ready["pid"], ready["registry"]
        self.spaces = namespaces(json.loads((self.state / "cluster/node/first").read_text())["pid"])
        busybox = oci.Image(
            {"bin/busybox": Path(shutil.which("busybox"))}, {f"bin/{name}": "busybox" for name in APPLETS}
        )
        self.digest = busybox.push(self.registry, "busybox", "1")

    def kubectl(self, *arguments, text=None, seconds=POD_SECONDS):
        """Runs kubectl; gives its output. Raises AssertionError when it fails."""
        done = subprocess.run(
            [str(self.state / "bin/kubectl"), "--kubeconfig", str(self.kubeconfig), *self.options, *arguments],
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            timeout=seconds + 10,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}{self.logs()}")
        return done.stdout

    def run_workload(self):
        """Applies test_node.yaml and waits until its pods run."""
        workload = WORKLOAD.replace("REGISTRY", self.registry).replace("DIGEST", self.digest)
        # A pod needs the ServiceAccount that a controller makes for a new namespace.
        self.kubectl("apply", "-f", "-", text=workload.partition("---")[0])
        self.eventually("a ServiceAccount", lambda: self.kubectl("get", "serviceaccount", "default", "-o", "name"))
        self.kubectl("apply", "-f", "-", text=workload)
        for what in ("condition=Available deployment/web", "condition=Ready pod/client"):
            condition, name = what.split()
            try:
                self.kubectl("wait", f"--for={condition}", f"--timeout={POD_SECONDS}s", name)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.kubectl('describe', 'pods')}") from error

    def eventually(self, what, probe, seconds=POD_SECONDS):
        """What the probe gives as soon as it gives something without an error."""
        try:
            return eventually(what, probe, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}{self.logs()}") from error

    def remove(self):
        """Stops it and removes its folder, in whatever state it is."""
        try:
            self.command("down")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)


class PodsRun(unittest.TestCase):
    """One cluster, with a workload, for all of these."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.remove)
        cls.cluster.up()
        cls.cluster.run_workload()

    def fetch(self, url, *under):
        """What a pod gets from a URL, with a command that runs the command `under`."""
        return self.cluster.kubectl("exec", "client", "--", *under, "wget", "-q", "-O", "-", url)

    def test_the_node_is_ready_in_the_version_of_the_api_server(self):
        version = json.loads(self.cluster.kubectl("version", "-o", "json"))["serverVersion"]["gitVersion"]
        node = json.loads(self.cluster.kubectl("get", "node", NODE, "-o", "json"))
        ready = [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"]
        self.assertEqual(ready, ["True"])
        self.assertEqual(node["status"]["nodeInfo"]["kubeletVersion"], version)

    def test_a_restricted_deployment_becomes_available(self):
        status = json.loads(self.cluster.kubectl("get", "deployment", "web", "-o", "json"))["status"]
        self.assertEqual(status["availableReplicas"], 2)

    def test_an_image_is_pulled_by_the_address_and_by_the_name_of_the_registry(self):
        # test_node.yaml has both: pods that run are pods whose image was pulled. The node may call it by either name.
        pods = json.loads(self.cluster.kubectl("get", "pods", "-o", "json"))["items"]
        names = {pod["spec"]["containers"][0]["image"].partition("/")[0] for pod in pods}
        self.assertEqual(names, {self.cluster.registry, "registry.convoke-system.svc:5000"})
        found = {pod["status"]["containerStatuses"][0]["imageID"].rpartition("@")[2] for pod in pods}
        self.assertEqual(found, {self.cluster.digest})

    def test_exec_runs_a_command_as_the_user_of_the_pod(self):
        self.assertIn("uid=65532", self.cluster.kubectl("exec", "client", "--", "id"))

    def test_logs_come_from_the_container(self):
        # The readiness probe's requests are logged.
        self.cluster.eventually(
            "a request in the log", lambda: "response:200" in self.cluster.kubectl("logs", "deployment/web")
        )

    def test_port_forward_reaches_a_pod(self):
        command = [str(self.cluster.state / "bin/kubectl"), "--kubeconfig", str(self.cluster.kubeconfig)]
        command += ["--namespace=demo", "port-forward", "deployment/web", ":8000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as forward:
            try:
                readable, _, _ = select.select([forward.stdout], [], [], POD_SECONDS)
                self.assertTrue(readable, "kubectl port-forward says nothing")
                line = forward.stdout.readline().decode()
                self.assertIn("127.0.0.1:", line)
                port = line.split("127.0.0.1:")[1].split()[0]
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                with opener.open(f"http://127.0.0.1:{port}/", timeout=POD_SECONDS) as reply:
                    self.assertEqual(reply.read(), b"hello from a pod\n")
            finally:
                forward.kill()

    def test_a_pod_finds_a_service_by_name(self):
        for name in ("web", "web.demo", "web.demo.svc.cluster.local"):
            self.assertEqual(self.fetch(f"http://{name}/"), "hello from a pod\n", name)

    def test_a_pod_reaches_the_registry_and_the_api_server(self):
        self.assertEqual(self.fetch("http://registry.convoke-system.svc:5000/v2/"), "{}")
        # It speaks TLS only; that it says so shows that it is there.
        with self.assertRaisesRegex(AssertionError, "400 Bad Request"):
            self.fetch("http://kubernetes.default.svc:443/")

    def test_a_network_policy_is_enforced(self):
        rules = [
            {"to": [{"podSelector": {"matchLabels": {"app": "web"}}}]},
            {"ports": [{"port": 53, "protocol": "UDP"}]},
        ]
        spec = {"podSelector": {"matchLabels": {"held": "yes"}}, "policyTypes": ["Egress"], "egress": rules}
        head = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "held"}}
        self.cluster.kubectl("apply", "-f", "-", text=json.dumps(head | {"spec": spec}))
        self.addCleanup(self.cluster.kubectl, "delete", "networkpolicy", "held")
        places = "http://kubernetes.default.svc:443/", f"http://{self.cluster.registry}/v2/"

        def refused(url):
            with self.assertRaisesRegex(AssertionError, "exit code 143"):
                self.fetch(url, "timeout", "2")
            return True

        self.cluster.kubectl("label", "pod", "client", "held=yes")
        try:
            for url in places:
                self.cluster.eventually(f"{url} is not reached", lambda url=url: refused(url))
            # What it allows goes on.
            self.assertEqual(self.fetch("http://web.demo.svc.cluster.local/"), "hello from a pod\n")
        finally:
            self.cluster.kubectl("label", "pod", "client", "held-")
        self.cluster.eventually("the registry again", lambda: self.fetch(places[1], "timeout", "2") == "{}")

    def test_the_machine_has_none_of_the_packet_rules(self):
        tables = machine_now()["nftables"]
        self.assertFalse([table for table in tables if any(name in table for name in ("kube-proxy", "filter", "convoke"))], tables)

    def test_a_second_checkout_has_a_cluster_of_its_own(self):
        other = Cluster()
        self.addCleanup(other.remove)
        other.up()
        other.run_workload()
        self.assertNotEqual(other.registry, self.cluster.registry)
        self.assertNotEqual(other.machine.link, self.cluster.machine.link)
        self.assertFalse(other.spaces & self.cluster.spaces)
        other.command("down")
        self.assertEqual(self.fetch("http://web.demo.svc.cluster.local/"), "hello from a pod\n")

    def test_up_again_says_that_it_runs(self):
        self.assertIn("already runs", self.cluster.command("up", "--node"))


class NothingIsLeft(unittest.TestCase):
    """However it ends, the machine is as before; and then it starts again."""

    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.remove)
        # The packages that the first start may install.
        self.cluster.command("tools", "--node")
        self.before = machine_now()
        self.cluster.up()
        self.cluster.run_workload()
        self.processes = processes_in(self.cluster.spaces)
        self.assertGreater(len(self.processes), 10)
        self.assertTrue(Path("/sys/class/net", self.cluster.machine.link).exists())
        self.assertTrue(list(Path("/sys/fs/cgroup").rglob(self.cluster.machine.cgroups.name)))

    def assert_processes_are_gone(self):
        # The kernel gives the numbers of namespaces and processes to others at once: the time of the start tells.
        left = [who for who, when in self.processes.items() if when and started_at(who[0]) == when]
        self.assertEqual(left, [])

    def assert_nothing_is_left(self):
        cluster = self.cluster
        self.assert_processes_are_gone()
        self.assertEqual(processes_in(cluster.spaces), {})
        # Its lock is free a moment before it is gone.
        cluster.eventually("the end of the supervisor", lambda: started_at(cluster.supervisor) is None)
        self.assertFalse(Path("/sys/class/net", cluster.machine.link).exists())
        self.assertEqual(list(Path("/sys/fs/cgroup").rglob(cluster.machine.cgroups.name)), [])
        self.assertFalse(cluster.machine.folder.exists())
        self.assertEqual(machine_now(), self.before)

    def kill_supervisor(self):
        os.kill(self.cluster.supervisor, signal.SIGKILL)

    def test_after_down(self):
        self.cluster.command("down")
        self.assert_nothing_is_left()

    def test_after_the_supervisor_was_killed_and_down(self):
        self.kill_supervisor()
        self.cluster.command("down")
        self.assert_nothing_is_left()

    def test_up_directly_after_the_supervisor_was_killed(self):
        self.kill_supervisor()
        self.cluster.up()
        self.assert_processes_are_gone()
        self.cluster.run_workload()
        self.cluster.command("down")
        self.assert_nothing_is_left()

    def test_after_a_part_of_the_node_was_killed(self):
        # The supervisor ends all, as it does without a node.
        kubelet = next(pid for pid, name in self.processes if name == "kubelet")
        os.kill(int(kubelet), signal.SIGKILL)
        self.cluster.eventually("the end of the supervisor", lambda: started_at(self.cluster.supervisor) is None)
        self.assertIn("kubelet ended", (self.cluster.state / "cluster/supervisor.log").read_text())
        self.assert_nothing_is_left()


class Refusals(unittest.TestCase):
    """A machine that cannot run a node is told why."""

    def test_a_missing_capability_is_named(self):
        cluster = Cluster()
        self.addCleanup(cluster.remove)
        before = machine_now()
        with self.assertRaisesRegex(AssertionError, "needs the capabilities NET_ADMIN,"):
            cluster.command("up", "--node", under=["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"])
        self.assertFalse(cluster.machine.folder.exists())
        self.assertEqual(machine_now(), before)


if __name__ == "__main__":
    unittest.main()
