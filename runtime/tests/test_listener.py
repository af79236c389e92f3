"""Programs of the image listen on all addresses, of IPv6 and IPv4."""

import contextlib
import errno
import socket
import unittest
from unittest import mock

from convoke_agent.listener import listener
from tests.support import ToolServer, ask, free_port, opens, wait_until

CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT}
TAKES = {"Accept": "application/json, text/event-stream"}


def has_ipv6():
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


class Listener(unittest.TestCase):
    def family(self):
        with contextlib.closing(listener(0)) as sock:
            return sock.family

    @unittest.skipUnless(has_ipv6(), "there is no IPv6")
    def test_both_families_where_there_are_both(self):
        with contextlib.closing(listener(0)) as sock:
            self.assertEqual(sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY), 0)
            for host in ("127.0.0.1", "::1"):
                socket.create_connection((host, sock.getsockname()[1]), 5).close()

    def test_ipv4_alone_where_there_is_no_other(self):
        with mock.patch.object(socket, "has_dualstack_ipv6", lambda: False):
            self.assertEqual(self.family(), socket.AF_INET)
        bind = socket.create_server

        def switched_off(address, **how):
            if how.get("family") == socket.AF_INET6:
                raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
            return bind(address, **how)

        with mock.patch.object(socket, "create_server", switched_off):
            self.assertEqual(self.family(), socket.AF_INET)

    def test_a_port_that_is_taken_is_told(self):
        with contextlib.closing(listener(0)) as sock, self.assertRaises(OSError):
            listener(sock.getsockname()[1])


class Tools(unittest.TestCase):
    @unittest.skipUnless(has_ipv6(), "there is no IPv6")
    def test_a_tool_server_answers_on_both(self):
        server = ToolServer()
        self.addCleanup(server.stop)
        wait_until(lambda: opens(server.port), "it listens")
        for host in ("127.0.0.1", "[::1]"):
            # By any name, as by that of its Service.
            for name in (host, "mcpserver-text-tools.team.svc"):
                headers = TAKES | {"Host": f"{name}:8000"}
                status, answer = ask(f"http://{host}:{server.port}", "/mcp", INITIALIZE, headers=headers)
                self.assertEqual(status, 200, answer)
                self.assertIn(b"protocolVersion", answer)

    def test_a_port_that_is_taken_ends_it(self):
        port = free_port()
        with socket.create_server(("", port)):
            server = ToolServer(port=port)
            self.addCleanup(server.stop)
            self.assertEqual(server.process.wait(60), 1)
        wait_until(lambda: "error: cannot listen" in server.output(), "it says why")


if __name__ == "__main__":
    unittest.main()
