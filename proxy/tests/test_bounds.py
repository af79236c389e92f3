"""What callers may hold of a proxy, without LiteLLM."""

import asyncio
import contextlib
import socket
import time
import unittest
from unittest import mock

from convoke_proxy import gate, keys, listen, metrics, provider, request

MIB = 1 << 20
SECONDS = 20


class Shares(unittest.TestCase):
    def setUp(self):
        self.gate = gate.Gate(None, None, None, None, None, None)

    def taken(self, agent, size=0):
        taken = gate.Taken(self.gate)
        taken.belongs_to(agent)
        taken.take(size)
        return taken

    def refused(self, work):
        with self.assertRaises(request.Refused) as told:
            work()
        return told.exception.status

    def test_no_caller_holds_all_bytes(self):
        first = [self.taken("a", 16 * MIB) for _ in range(2)]
        third = self.taken("a")
        self.assertEqual(self.refused(lambda: third.take(1)), 503)
        other = [self.taken("b", 16 * MIB) for _ in range(2)]
        self.assertEqual(self.refused(lambda: self.taken("c", 1)), 503, "all of them have bounds, too")
        first[0].give_back()
        third.take(16 * MIB)
        for held in (first[1], third, *other):
            held.give_back()

    def test_what_never_fits_is_not_to_be_tried_again(self):
        self.assertEqual(self.refused(lambda: self.taken("a", 33 * MIB)), 413)

    def test_no_caller_holds_all_requests(self):
        held = [self.taken("a") for _ in range(gate.MOST_REQUESTS_OF_ONE)]
        late = gate.Taken(self.gate)
        self.assertEqual(self.refused(lambda: late.belongs_to("a")), 503)
        late.give_back()
        held += [self.taken("b") for _ in range(gate.MOST_REQUESTS_AT_ONCE - gate.MOST_REQUESTS_OF_ONE)]
        self.assertEqual(self.refused(lambda: gate.Taken(self.gate)), 503)
        for taken in held:
            taken.give_back()
        self.assertEqual(self.gate.shares, {})
        self.assertEqual((self.gate.all.requests, self.gate.all.bytes), (0, 0))

    def test_questions_for_the_list_of_models_have_their_share_too(self):
        keyring = mock.Mock()
        keyring.caller = lambda key: keys.Caller(key)
        statuses = []

        async def never(scope, receive, send):
            await asyncio.Event().wait()

        async def send(event):
            statuses.append(event.get("status"))

        def ask(agent):
            headers = [(b"authorization", b"Bearer " + agent)]
            scope = {"type": "http", "method": "GET", "path": "/v1/models", "headers": headers}
            return served(scope | {"asgi": {}, "http_version": "1.1"}, None, send)

        async def work():
            held = [asyncio.ensure_future(ask(b"a")) for _ in range(gate.MOST_REQUESTS_OF_ONE)]
            await asyncio.sleep(0)
            self.assertEqual(served.all.requests, gate.MOST_REQUESTS_OF_ONE)
            late = asyncio.ensure_future(ask(b"a"))
            other = asyncio.ensure_future(ask(b"b"))
            await asyncio.sleep(0)
            self.assertEqual((statuses[:1], late.done(), other.done()), ([503], True, False))
            for task in (*held, other):
                task.cancel()
            await asyncio.gather(*held, other, return_exceptions=True)

        served = gate.Gate(never, keyring, None, metrics.Counters(), provider.Outcomes(), lambda _: None)
        asyncio.run(work())
        self.assertEqual((served.shares, served.all.requests), ({}, 0))


class Pages(unittest.TestCase):
    def test_a_connection_that_trickles_keeps_its_place_for_a_while_only(self):
        with mock.patch.object(metrics, "CONNECTION_SECONDS", 1):
            server = metrics.listener(listen.bound("127.0.0.1", 0), {"/a": lambda: (200, "text/plain", "yes")})
            self.addCleanup(server.server_close)
            self.addCleanup(server.shutdown)
            address = server.server_address[:2]
            slow = [socket.create_connection(address, timeout=SECONDS) for _ in range(metrics.MOST_CONNECTIONS)]
            for client in slow:
                self.addCleanup(client.close)
                client.settimeout(0.05)
            left, until = set(slow), time.monotonic() + SECONDS
            while left:
                self.assertLess(time.monotonic(), until, "they stay")
                for client in list(left):
                    try:
                        client.sendall(b"G")
                        if client.recv(1) == b"":
                            left.discard(client)
                    except TimeoutError:
                        pass
                    except OSError:
                        left.discard(client)
        with socket.create_connection(server.server_address[:2], timeout=SECONDS) as client:
            client.sendall(b"GET /a HTTP/1.0\r\n\r\n")
            said = b""
            with contextlib.suppress(OSError):
                while data := client.recv(4096):
                    said += data
        self.assertTrue(said.endswith(b"yes"), said)


if __name__ == "__main__":
    unittest.main()
