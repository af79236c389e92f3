"""Connections that send no request, or take no answer, without LiteLLM."""

import asyncio
import contextlib
import socket
import threading
import time
import unittest
from unittest import mock

import uvicorn
from convoke_proxy import server

REQUEST = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"
LONG = 8 << 20
# Less than what has uvicorn wait until a client takes more.
REST = 16 << 10
SECONDS = 20


class Application:
    """Answers at once; a request for /wait when it is told to, one for /long at length, and one for /rest until a rest is left."""

    def __init__(self):
        self.go = threading.Event()
        self.begun = 0
        self.left = lambda: 0

    async def __call__(self, scope, receive, send):
        self.begun += 1
        if scope["path"] == "/wait":
            while not self.go.is_set():
                await asyncio.sleep(0.01)
        if scope["path"] == "/rest":
            await self.answer_with_rest(send)
            return
        data = b"x" * (LONG if scope["path"] == "/long" else 2)
        headers = [(b"content-length", str(len(data)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    async def answer_with_rest(self, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while self.left() < REST:
            await send({"type": "http.response.body", "body": b"x" * 1024, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})


class Connections(unittest.TestCase):
    def start(self, **bounds):
        for name, value in bounds.items():
            patched = mock.patch.object(server, name, value)
            patched.start()
            self.addCleanup(patched.stop)
        self.application = Application()
        settings = uvicorn.Config(
            self.application, http=server.Protocol, ws="none", log_config=None, access_log=False, lifespan="off"
        )
        self.server = uvicorn.Server(settings)
        sock = socket.create_server(("127.0.0.1", 0))
        # What nobody takes soon fills it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 << 10)
        self.port = sock.getsockname()[1]
        thread = threading.Thread(target=self.server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        self.addCleanup(thread.join, SECONDS)
        self.addCleanup(self.end)
        self.eventually(lambda: self.server.started)

    def end(self):
        self.application.go.set()
        self.server.should_exit = self.server.force_exit = True

    def eventually(self, check):
        until = time.monotonic() + SECONDS
        while not check():
            self.assertLess(time.monotonic(), until, "not in time")
            time.sleep(0.01)

    def connect(self, sent=b"", reads_little=False):
        client = socket.socket()
        self.addCleanup(client.close)
        client.settimeout(SECONDS)
        if reads_little:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", self.port))
        client.sendall(sent)
        return client

    def open_connections(self):
        return len(self.server.server_state.connections)

    def is_answered(self, client):
        return client.recv(4096).startswith(b"HTTP/1.1 200")

    def is_closed(self, client):
        """Whether the server ends a connection without another byte."""
        try:
            return client.recv(4096) == b""
        except ConnectionResetError:
            return True

    def trickled(self, client):
        """Seconds until a connection that sends a byte now and then is closed."""
        began = time.monotonic()
        client.settimeout(0.05)
        while time.monotonic() - began < SECONDS:
            with contextlib.suppress(TimeoutError):
                if self.is_closed(client):
                    return time.monotonic() - began
            with contextlib.suppress(OSError):
                client.sendall(b"x")
        self.fail("it is never closed")

    def test_a_request_that_does_not_come_whole_is_given_up(self):
        self.start(HEAD_SECONDS=1)
        self.assertTrue(self.is_closed(self.connect()), "nothing came")
        self.trickled(self.connect(b"GET / HTTP/1.1\r\nX: "))
        second = self.connect(REQUEST % b"")
        self.assertTrue(self.is_answered(second))
        second.sendall(b"GET / HTTP/1.1\r\nX: ")
        self.trickled(second)
        self.eventually(lambda: self.open_connections() == 0)
        self.assertEqual(server.Protocol.waiting, {})

    def test_a_request_that_is_answered_late_is_not_given_up(self):
        self.start(HEAD_SECONDS=0.2)
        client = self.connect(REQUEST % b"wait")
        self.eventually(lambda: self.application.begun == 1)
        time.sleep(0.5)
        self.application.go.set()
        self.assertTrue(self.is_answered(client))

    def test_those_without_a_request_make_room_the_oldest_first(self):
        self.start(MOST_CONNECTIONS=4)
        busy = self.connect(REQUEST % b"wait")
        self.eventually(lambda: self.application.begun == 1)
        idle = []
        for _ in range(3):
            idle.append(self.connect(b"GET"))
            self.eventually(lambda: self.open_connections() == 1 + len(idle))
        probe = self.connect(REQUEST % b"")
        self.assertTrue(self.is_answered(probe))
        self.assertTrue(self.is_closed(idle[0]))
        self.application.go.set()
        self.assertTrue(self.is_answered(busy))
        idle[1].sendall(b" / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertTrue(self.is_answered(idle[1]), "it was not the oldest")

    def test_there_is_room_for_some_more_when_all_have_requests(self):
        self.start(MOST_CONNECTIONS=2, SPARE_CONNECTIONS=1)
        for number in (1, 2):
            self.connect(REQUEST % b"wait")
            self.eventually(lambda number=number: self.application.begun == number)
        probe = self.connect(REQUEST % b"")
        self.assertTrue(self.is_answered(probe))
        probe.sendall(REQUEST % b"wait")
        self.eventually(lambda: self.application.begun == 4)
        self.assertTrue(self.is_closed(self.connect()))
        self.assertEqual(self.application.begun, 4)

    def test_an_answer_that_nobody_takes_is_given_up(self):
        self.start(STALLED_SECONDS=1)
        self.connect(REQUEST % b"long")
        self.eventually(lambda: self.application.begun == 1)
        self.eventually(lambda: self.open_connections() == 0)

    def test_an_answer_that_is_taken_slowly_is_whole(self):
        self.start(STALLED_SECONDS=2, LEAST_TAKEN=1)
        client = self.connect(REQUEST % b"long", reads_little=True)
        got, began = 0, time.monotonic()
        while got < LONG:
            data = client.recv(1 << 16)
            self.assertTrue(data, f"it ends after {got} bytes")
            got += len(data)
            # It takes longer than the deadline, and takes something all the time.
            time.sleep(max(0, began + 6 * got / LONG - time.monotonic()))

    def test_an_answer_that_trickles_away_is_given_up(self):
        self.start(STALLED_SECONDS=1)
        client = self.connect(REQUEST % b"long", reads_little=True)
        self.eventually(lambda: self.application.begun == 1)
        until = time.monotonic() + SECONDS
        while self.open_connections():
            self.assertLess(time.monotonic(), until, "it stays")
            with contextlib.suppress(OSError):
                client.recv(1)
            time.sleep(0.05)

    def filled(self):
        """A connection that asks again and again and takes no answer, until nothing more of it is taken."""
        client = self.connect(reads_little=True)
        client.settimeout(1)
        rest = b""
        with contextlib.suppress(TimeoutError):
            while True:
                # Not sendall: its time is for all of it, and a busy machine needs longer.
                rest = rest or REQUEST % b"" * 2000
                rest = rest[client.send(rest) :]
        return client

    def test_those_that_take_no_answers_make_room(self):
        self.start(MOST_CONNECTIONS=2, SPARE_CONNECTIONS=1)
        open_now = self.server.server_state.connections
        for number in range(3):
            self.filled()
            self.eventually(lambda number=number: self.open_connections() == min(number + 1, 2))
            self.eventually(lambda: all(one.is_left for one in list(open_now)))
        self.assertTrue(self.is_answered(self.connect(REQUEST % b"")), "there is room for a probe")

    def leaves_the_rest(self, more):
        self.start(STALLED_SECONDS=1)
        client = self.connect(reads_little=True)
        self.eventually(lambda: self.open_connections() == 1)
        (served,) = self.server.server_state.connections
        self.application.left = served.transport.get_write_buffer_size
        client.sendall(b"GET /rest HTTP/1.1\r\nHost: x\r\n" + more + b"\r\n")
        self.eventually(lambda: self.application.begun == 1 and served.is_waiting())
        self.assertLess(served.transport.get_write_buffer_size(), 64 << 10)
        self.eventually(lambda: self.open_connections() == 0)
        self.assertEqual(server.Protocol.waiting, {})

    def test_the_rest_of_an_answer_that_nobody_takes_is_given_up(self):
        self.leaves_the_rest(b"")

    def test_the_rest_of_the_last_answer_that_nobody_takes_is_given_up(self):
        self.leaves_the_rest(b"Connection: close\r\n")

    def test_requests_that_come_at_once_are_answered_one_after_the_other(self):
        self.start()
        client = self.connect(REQUEST % b"" * 2000, reads_little=True)
        said = b""
        while said.count(b"HTTP/1.1 200") < 2000 or not said.endswith(b"xx"):
            data = client.recv(1 << 16)
            self.assertTrue(data, "it ends")
            said += data
        self.assertEqual(self.application.begun, 2000)


if __name__ == "__main__":
    unittest.main()
