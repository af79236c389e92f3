"""The bridges of packages that speak MCP over stdio. That of npm packages needs Node.js, and has a program that does what a
test asks for. Of that of Python packages, where it listens."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "src/controllers/mcp_server"
BRIDGE = (FOLDER / "bridge.js").read_text()
PYTHON_BRIDGE = (FOLDER / "bridge.py").read_text()
SECONDS = 20

# Answers `tools/call` with the arguments, after so many seconds, or ends, or writes what it is told.
PROGRAM = r"""
import json, os, sys, threading, time
lock = threading.Lock()
cancelled = []

def write(text):
    with lock:
        print(text, flush=True)

def say(**message):
    write(json.dumps({"jsonrpc": "2.0", **message}))

def call(number, wanted):
    time.sleep(wanted.get("seconds", 0))
    say(id=number, result={"echo": wanted, "argv": sys.argv[1:], "cancelled": cancelled, "env": os.environ.get("WORD")})

print("this is a log line", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        say(id=message["id"], result={"protocolVersion": params["protocolVersion"], "capabilities": {},
                                      "serverInfo": {"name": "scripted", "version": "1"}})
    elif method == "notifications/cancelled":
        cancelled.append(params["requestId"])
    elif method == "tools/call":
        wanted = params["arguments"]
        if "exit" in wanted:
            os._exit(wanted["exit"])
        if "ask" in wanted:
            say(id="mine", method=wanted["ask"])
        threading.Thread(target=call, args=(message["id"], wanted)).start()
    elif method == "fail":
        say(id=message["id"], error={"code": -1, "message": "no"})
    elif "result" in message or "error" in message:
        cancelled.append(message)
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Bridge(unittest.TestCase):
    def setUp(self):
        self.port = free_port()
        folder = self.enterContext(tempfile.TemporaryDirectory())
        program = Path(folder) / "program.py"
        program.write_text(PROGRAM)
        self.log = self.enterContext(open(Path(folder) / "log", "w+"))
        command = ["node", "-e", BRIDGE, "--", str(self.port), sys.executable, str(program), "--flag", "$(HOME) a b"]
        self.process = subprocess.Popen(command, stderr=self.log, env={**os.environ, "WORD": "given"})
        self.addCleanup(self.process.wait, SECONDS)
        self.addCleanup(self.process.kill)
        until = time.monotonic() + SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            self.assertIsNone(self.process.poll(), self.said())
            self.assertLess(time.monotonic(), until, "it does not listen")
            time.sleep(0.05)

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def send(self, body, method="POST", path="/mcp", headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        with contextlib.closing(connection):
            kept = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
            connection.request(method, path, body, {**kept, **(headers or {})})
            response = connection.getresponse()
            text = response.read()
            return response.status, json.loads(text) if text else None

    def ask(self, method, number=1, **params):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        status, answer = self.send(json.dumps(message))
        self.assertEqual((status, answer["id"]), (200, number), answer)
        return answer

    def call(self, number=1, **arguments):
        return self.ask("tools/call", number, name="t", arguments=arguments)["result"]

    def test_t1_a_program_on_stdio_answers_over_http(self):
        hello = self.ask("initialize", "first", protocolVersion="2025-06-18")["result"]
        self.assertEqual(hello["serverInfo"]["name"], "scripted")
        notified = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.assertEqual(self.send(notified), (202, None))
        self.assertEqual(self.ask("ping")["result"], {})
        answer = self.call(text="ä\n😀")
        self.assertEqual(answer["echo"], {"text": "ä\n😀"})
        self.assertEqual((answer["argv"], answer["env"]), (["--flag", "$(HOME) a b"], "given"))
        self.assertEqual(self.ask("fail")["error"], {"code": -1, "message": "no"})
        # What the program asks a client is answered, so that it does not wait.
        self.call(ask="sampling/createMessage")
        [refused] = self.call()["cancelled"]
        self.assertEqual((refused["id"], refused["error"]["code"]), ("mine", -32601))

    def test_t1_each_client_gets_its_own_answer(self):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            # All with the same id; the later ones answer first.
            wanted = [{"n": n, "seconds": (63 - n) / 100, "text": "x" * 70_000} for n in range(64)]
            found = list(pool.map(lambda arguments: self.call(**arguments)["echo"], wanted))
        self.assertEqual(found, wanted)

    def test_t1_a_client_that_goes_away_is_told_to_the_program(self):
        params = {"arguments": {"seconds": 9}}
        body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params})
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)) as connection:
            connection.request("POST", "/mcp", body, {"Content-Type": "application/json"})
        until = time.monotonic() + SECONDS
        while not self.call()["cancelled"]:
            self.assertLess(time.monotonic(), until, "nothing is cancelled")
            time.sleep(0.05)

    def test_t1_what_is_no_request_is_refused(self):
        good = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        for status, change in {
            400: {"body": "{"},
            403: {"headers": {"Origin": "https://evil.example"}},
            404: {"path": "/other"},
            405: {"method": "GET"},
            413: {"body": json.dumps({"text": "x" * (5 << 20)})},
            415: {"headers": {"Content-Type": "text/plain"}},
        }.items():
            with self.subTest(status=status):
                found, answer = self.send(**{"body": good, **change})
                self.assertEqual((found, answer["id"]), (status, None))
        for body in ("[]", "null", '"x"', '{"id": 1, "method": "ping"}', f"[{good}]"):
            with self.subTest(body=body):
                self.assertEqual(self.send(body)[0], 400)
        self.assertEqual(self.ask("ping")["result"], {})

    def test_t1_bodies_that_are_being_read_have_a_bound_together(self):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "text": "x" * 4_000_000}).encode()
        lines = ("POST /mcp HTTP/1.1", "Host: x", "Content-Type: application/json")
        head = "\r\n".join((*lines, f"Content-Length: {len(body)}", "", ""))
        until = time.monotonic() + 3 * SECONDS
        with contextlib.ExitStack() as held:
            # Any of those that are being read may be the one that is refused. So there is one more each time.
            while (status := self.send(body)[0]) != 503:
                self.assertEqual(status, 200)
                self.assertLess(time.monotonic(), until, "nothing is refused")
                client = held.enter_context(socket.create_connection(("127.0.0.1", self.port), SECONDS))
                with contextlib.suppress(OSError):
                    # All but the last byte.
                    client.sendall(head.encode() + body[:-1])
        # Those who held them are gone.
        while self.send(body)[0] != 200:
            self.assertLess(time.monotonic(), until, "it is not taken again")
            time.sleep(0.05)
        self.assertEqual(self.ask("ping")["result"], {})

    def test_t1_it_ends_with_its_program(self):
        for arguments, how in (({"exit": 0}, "exit code 0"), ({"exit": 3}, "exit code 3")):
            with self.subTest(how=how):
                with self.assertRaises((OSError, http.client.HTTPException)):
                    self.call(**arguments)
                self.assertEqual(self.process.wait(SECONDS), 1)
                self.assertIn(f"ended with {how}", self.said())
            self.doCleanups()
            self.setUp()

    def test_t1_a_stop_waits_for_answers(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.call, seconds=1)
            time.sleep(0.4)
            self.process.send_signal(signal.SIGTERM)
            self.assertEqual(answer.result()["echo"], {"seconds": 1})
        self.assertEqual(self.process.wait(SECONDS), 0)


# In place of uvicorn and mcp-proxy: says its arguments to those who connect, two at most.
UVICORN = """
import sys
class Server:
    async def serve(self, sockets):
        [sock] = sockets
        sock.listen()
        for _ in range(2):
            client, _ = sock.accept()
            with client:
                client.sendall(" ".join(sys.argv).encode())
"""
MCP_PROXY = """
import asyncio, uvicorn
def main():
    asyncio.run(uvicorn.Server().serve())
"""


def has_ipv6():
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


class PythonBridge(unittest.TestCase):
    def said(self, host, port):
        """What it says to one who connects."""
        until = time.monotonic() + SECONDS
        while True:
            try:
                with socket.create_connection((host, port), SECONDS) as client:
                    return client.makefile().read()
            except OSError:
                self.assertLess(time.monotonic(), until, f"it does not listen at {host}")
                time.sleep(0.05)

    @unittest.skipUnless(has_ipv6(), "there is no IPv6")
    def test_t1_it_listens_on_ipv4_and_ipv6(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "uvicorn.py").write_text(UVICORN)
        (folder / "mcp_proxy").mkdir()
        (folder / "mcp_proxy/__main__.py").write_text(MCP_PROXY)
        port = free_port()
        command = [sys.executable, "-I", "-c", PYTHON_BRIDGE, str(folder), str(port), "the-program"]
        process = subprocess.Popen(command)
        self.addCleanup(process.wait, SECONDS)
        self.addCleanup(process.kill)
        for host in ("127.0.0.1", "::1"):
            self.assertRegex(self.said(host, port), f"(?s)^mcp-proxy --port {port} .* the-program$")
        self.assertEqual(process.wait(SECONDS), 0)


class NoProgram(unittest.TestCase):
    def test_t1_a_program_that_does_not_exist_is_a_failure_that_is_told(self):
        command = ["node", "-e", BRIDGE, "--", "0", "/no/such/program"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("/no/such/program", ended.stderr)

    def test_t1_a_program_that_refuses_to_begin_is_a_failure_that_is_told(self):
        program = """
import json, sys
answer = json.loads(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
        for answer in ({"error": {"code": -32602, "message": "no such version"}}, {"result": None}, {}):
            with self.subTest(answer=answer):
                port = str(free_port())
                command = ["node", "-e", BRIDGE, "--", port, sys.executable, "-c", program, json.dumps(answer)]
                ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
                self.assertEqual(ended.returncode, 1)
                self.assertIn("its answer to initialize: ", ended.stderr)
                self.assertIn(json.dumps(answer.get("error"), separators=(",", ":")), ended.stderr)


if __name__ == "__main__":
    unittest.main()
