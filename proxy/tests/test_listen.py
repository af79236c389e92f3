"""Where the proxy listens: on all addresses of the families that there are."""

import contextlib
import errno
import resource
import socket
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

from convoke_proxy import listen


def has_ipv6():
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


class Bound(unittest.TestCase):
    def bound(self, host=None, port=0):
        sock = listen.bound(host, port)
        self.addCleanup(sock.close)
        return sock

    @unittest.skipUnless(has_ipv6(), "there is no IPv6")
    def test_without_a_host_it_is_for_both_families(self):
        sock = self.bound()
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", sock.getsockname()[1]), 5)
        sock.listen()
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, sock.getsockname()[1]), 5).close()

    def test_it_is_of_ipv4_where_there_is_no_other(self):
        with mock.patch.object(socket, "has_dualstack_ipv6", lambda: False):
            self.assertEqual(self.bound().family, socket.AF_INET)
        made = listen.made

        def switched_off(family, address):
            if family == socket.AF_INET6:
                raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
            return made(family, address)

        with mock.patch.object(listen, "made", switched_off):
            self.assertEqual(self.bound().family, socket.AF_INET)

    def test_a_host_is_taken_as_it_is(self):
        self.assertEqual(self.bound("127.0.0.1").getsockname()[0], "127.0.0.1")

    def test_a_port_that_is_taken_is_told(self):
        sock = self.bound()
        sock.listen()
        with self.assertRaises(OSError):
            self.bound(port=sock.getsockname()[1])


class Files(unittest.TestCase):
    def limits(self, soft, hard):
        """The soft limit that a process has after it started with these, and what it said."""
        code = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from convoke_proxy import listen
said = []
listen.files(said.append)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], len(said))
"""
        folder = Path(__file__).resolve().parents[1]
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
        return tuple(int(word) for word in done.stdout.split())

    @unittest.skipUnless(resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= listen.FILES, "so many may not be open here")
    def test_as_many_files_may_be_open_as_connections_need(self):
        self.assertEqual(self.limits(1024, listen.FILES), (listen.FILES, 0))
        self.assertEqual(self.limits(listen.FILES, listen.FILES), (listen.FILES, 0))

    def test_it_is_told_when_fewer_may_be(self):
        self.assertEqual(self.limits(256, 512), (512, 1))


if __name__ == "__main__":
    unittest.main()
