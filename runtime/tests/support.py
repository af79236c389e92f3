"""What the tests start: a model API, tool servers, agents. All on loopback, each on a free port."""

import contextlib
import http.client
import json
import os
import pathlib
import queue
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

from tests import scripted_model

RUNTIME = pathlib.Path(__file__).parents[1]
# Long: the machine may be busy. Nothing waits this long where all is well.
SECONDS = 120
TOOLS = '''
import pathlib, time
def count_words(text: str) -> int:
    """Counts words."""
    return len(text.split())
def echo(text: str) -> str:
    """Gives the text back."""
    return "tool says " + text
def fails(text: str) -> str:
    """Fails."""
    raise ValueError("the tool broke: " + text)
def hangs() -> str:
    """Never answers."""
    time.sleep(3600)
def long(characters: int) -> str:
    """Gives a long text."""
    return "x" * characters
def note(file: str, text: str) -> str:
    """Adds a line to a file."""
    with open(file, "a") as opened:
        opened.write(text + "\\n")
    return "noted " + text
'''
# What a test's own environment may hold does not reach what it starts.
PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "SSL_CERT_FILE")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def wait_until(check, why, seconds=SECONDS):
    """Waits until `check` gives something true, and gives that."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := check():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {why}")


def ask(url, path="/", body=None, method=None, headers=None, seconds=SECONDS):
    """One HTTP request. Gives the status and the body, as a JSON value where it is one."""
    status, content, _ = ask_raw(url, path, body, method, headers, seconds)
    try:
        return status, json.loads(content)
    except ValueError:
        return status, content


def ask_raw(url, path, body=None, method=None, headers=None, seconds=SECONDS):
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=seconds)
    headers = {"Content-Type": "application/json"} | (headers or {}) if body is not None else headers or {}
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    with contextlib.closing(connection):
        connection.request(method or ("GET" if body is None else "POST"), path, body, headers)
        reply = connection.getresponse()
        return reply.status, reply.read(), reply.headers


class Program:
    """A process and the lines that it wrote."""

    def __init__(self, arguments, environment, python=sys.executable):
        self.lines = []
        self._queue = queue.Queue()
        inherited = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
        self.process = subprocess.Popen(
            [python, *arguments],
            cwd=RUNTIME,
            env=inherited | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def output(self):
        return "\n".join(self.lines)

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        self.process.stdout.close()


class Agent(Program):
    """An agent. It is ready once this returns, unless told not to wait."""

    def __init__(self, name, environment=None, port=None, wait=True):
        self.name = name
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__(
            ["-m", "convoke_agent"],
            {"AGENT_NAME": name, "MODEL_NAME": "scripted", "PORT": str(self.port)} | (environment or {}),
        )
        if wait:
            self.wait_ready()

    def wait_ready(self, seconds=SECONDS):
        try:
            wait_until(self.is_ready, f"{self.name} is ready", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.state()}\n{self.output()}") from None

    def state(self):
        try:
            return ask(self.url, "/ready")
        except OSError:
            return None, None

    def is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended")
        return self.state()[0] == 200

    def chat(self, text, headers=None, **more):
        body = {"messages": [{"role": "user", "content": text}]} | more
        return ask(self.url, "/v1/chat/completions", body, headers=headers)

    def said(self, text, headers=None):
        status, body = self.chat(text, headers)
        assert status == 200, body
        return body["choices"][0]["message"]["content"]

    def rpc(self, method, params, headers=None):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = headers if headers is not None else {"A2A-Version": "1.0"} if "/" not in method else {}
        return ask(self.url, "/", body, headers=headers)[1]

    def send(self, text=None, data=None, message=None, configuration=None, metadata=None):
        """An A2A 1.0 message. Gives the task."""
        parts = ([{"text": text}] if text is not None else []) + ([{"data": data}] if data is not None else [])
        message = {"role": "ROLE_USER", "messageId": "m", "parts": parts} | (message or {})
        if metadata:
            message["metadata"] = metadata
        params = {"message": message} | ({"configuration": configuration} if configuration else {})
        reply = self.rpc("SendMessage", params)
        return reply["result"]["task"] if "result" in reply else reply


class ToolServer(Program):
    """A tool server made of functions. Agents wait for it by themselves."""

    def __init__(self, source=TOOLS, port=None):
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        super().__init__(["-m", "mcptools.server"], {"MCP_TOOLS_STRING": source, "PORT": str(self.port)})


def opens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class ScriptedModel:
    """The model API, in a thread."""

    def __init__(self, rules=()):
        self.model = scripted_model.Model({"rules": list(rules)})
        self._server = scripted_model.server(self.model)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()

    def asked(self, text):
        """Bodies of the requests whose last message of the user has this text in it."""
        found = []
        for one in list(self.model.requests):
            users = [m for m in one["body"]["messages"] if m["role"] == "user"]
            if users and text in scripted_model.text_of(users[-1]["content"]):
                found.append(one)
        return found


def text_of(task):
    """What a task of A2A 1.0 answers."""
    return "".join(part.get("text", "") for artifact in task["artifacts"] for part in artifact["parts"])


def approval_of(task):
    """What a waiting task of A2A 1.0 asks for."""
    return next(part["data"]["approval"] for part in task["status"]["message"]["parts"] if "data" in part)


def reason_of(task):
    """Why a task of A2A 1.0 failed."""
    return next(part["data"]["error"]["reason"] for part in task["status"]["message"]["parts"] if "data" in part)
