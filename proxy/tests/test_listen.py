"""Where the proxy listens: on all addresses of the families that there are."""

import contextlib
import errno
import socket
import unittest
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


if __name__ == "__main__":
    unittest.main()
