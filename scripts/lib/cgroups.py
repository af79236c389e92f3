"""The cgroups of a node's pods: one of a name in each hierarchy of this machine.

Standard library only, Python 3.11 or newer, Linux.
"""

import errno
import os
import signal
import time
from pathlib import Path

from control_plane import Failed

END_SECONDS = 10


class Cgroups:
    """One cgroup of a name in each hierarchy of this machine, v1 or v2."""

    def __init__(self, name):
        self.name = name
        self.roots = []
        self.unified = None
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            before, _, after = line.partition(" - ")
            kind = after.split()[0]
            root = Path(before.split()[4])
            if kind == "cgroup":
                self.roots.append(root)
            elif kind == "cgroup2":
                self.unified = root

    def make(self):
        """Makes them, for the kubelet to put the pods' below."""
        if not self.roots:
            self.make_unified()
        for root in self.roots:
            folder = root / self.name
            folder.mkdir(exist_ok=True)
            # These two are empty in a new group of v1, and then no process can be in it.
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if (folder / setting).exists():
                    (folder / setting).write_text((root / setting).read_text())

    def make_unified(self):
        if self.unified is None:
            raise Failed("no cgroups are mounted at /sys/fs/cgroup: a node needs them")
        folder = self.unified / self.name
        folder.mkdir(exist_ok=True)
        have = (self.unified / "cgroup.controllers").read_text().split()
        want = [name for name in ("cpuset", "cpu", "io", "memory", "hugetlb", "pids") if name in have]
        missing = {"cpuset", "cpu", "memory", "pids"} - set(want)
        if missing:
            raise Failed(f"this machine or container has no cgroup controllers {', '.join(sorted(missing))}")
        for parent in (self.unified, folder):
            try:
                (parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in want))
            except OSError as error:
                hint = ""
                if error.errno == errno.EBUSY:
                    hint = ": a container whose processes are in its topmost cgroup; move them into one below"
                raise Failed(f"cannot hand on cgroup controllers in {parent} ({error.strerror}){hint}") from error

    def remove(self):
        """Kills what is in them and removes them. Raises Failed when that takes too long."""
        deadline = time.monotonic() + END_SECONDS
        left = [root / self.name for root in [*self.roots, *([self.unified] if self.unified else [])]]
        while left := [top for top in left if not removed(top)]:
            if time.monotonic() > deadline:
                raise Failed(f"cannot remove {', '.join(map(str, left))}: processes in them do not end")
            time.sleep(0.02)


def removed(top):
    """Tries to remove a cgroup and those below it; kills the processes that are in the way."""
    for folder, _, _ in os.walk(top, topdown=False):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError:
            try:
                pids = Path(folder, "cgroup.procs").read_text().split()
            except OSError:
                continue
            for pid in pids:
                # 0 is a process that our PID namespace doesn't see: never one of ours.
                if int(pid) > 0:
                    kill(int(pid))
    return not top.exists()


def kill(pid):
    """SIGKILL, if it still lives."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
