"""The proxy as a process, with a provider behind it, for tests."""

import hashlib
import hmac
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .provider import Provider

PROXY = Path(__file__).resolve().parents[1]
NAMESPACE = "team"
SIGNING_KEY = "signing-key-of-the-tests-0123456789abcdef"
MASTER_KEY = "sk-master-key-of-the-tests-0123456789"
PROVIDER_KEY = "sk-provider-key-of-the-tests"
# A machine that does much else takes ten times as long as a quiet one.
START_SECONDS = 300
SECONDS = 20


def key(agent, uid="1-a", issued=None, namespace=NAMESPACE, signing_key=SIGNING_KEY):
    """A key of an agent."""
    issued = int(time.time()) if issued is None else issued
    mac = hmac.new(signing_key.encode(), f"{namespace}/{agent}/{uid}/{issued}".encode(), hashlib.sha256).hexdigest()
    return f"sk-cvk-{agent}.{uid}.{issued}.{mac}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def few_files():
    """As some container runtimes start a process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))


class Running:
    """A proxy that runs. `models` is LiteLLM's model_list; PROVIDER in it stands for the provider's address."""

    def __init__(self, config=None, agents=(), env=None):
        self.folder = Path(tempfile.mkdtemp(prefix="convoke-proxy-"))
        self.provider = Provider(PROVIDER_KEY)
        self.port, self.metrics_port = free_port(), free_port()
        for name in ("keys", "agents", "home"):
            (self.folder / name).mkdir()
        (self.folder / "keys/master-key").write_text(MASTER_KEY)
        (self.folder / "keys/signing-key").write_text(SIGNING_KEY + "\n")
        self.list(agents)
        (self.folder / "config.yaml").write_text(json.dumps(config or proxy_config()))
        self.log_path = self.folder / "log"
        command = [
            sys.executable,
            "-m",
            "convoke_proxy",
            "--config",
            self.folder / "config.yaml",
        ]
        command += ["--port", self.port, "--metrics-port", self.metrics_port]
        command += ["--keys", self.folder / "keys", "--agents", self.folder / "agents"]
        given = {"PATH": os.environ["PATH"], "HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "home")}
        given |= {"PYTHONPATH": str(PROXY), "PROXY_API_BASE": self.provider.url, "PROXY_API_KEY": PROVIDER_KEY}
        # As much as a test of what leaks wants to see: the proxy must bound it itself.
        given |= {"LITELLM_LOG": "DEBUG"} | (env or {})
        self.env = given
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command], env=given, stdout=log, stderr=log, preexec_fn=few_files
            )

    def list(self, agents):
        """Writes agents.json: (name, uid, issued) each."""
        listed = [dict(zip(("name", "uid", "issued"), agent, strict=True)) for agent in agents]
        new = self.folder / "agents/new"
        new.write_text(json.dumps({"namespace": NAMESPACE, "agents": listed}))
        new.replace(self.folder / "agents/agents.json")

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait(self):
        """Waits until it serves."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise AssertionError(f"the proxy ended with {self.process.returncode}:\n{self.log()}")
            try:
                if self.ask("GET", "/health/liveliness")[0] == 200:
                    return
            except OSError:
                time.sleep(0.1)
        raise AssertionError(f"the proxy did not start:\n{self.log()}")

    def ask(self, method, path, body=None, key=None, headers=(), port=None, host="127.0.0.1"):
        """Sends a request; gives status and text."""
        connection = http.client.HTTPConnection(host, port or self.port, timeout=SECONDS)
        try:
            given = dict(headers)
            if key is not None:
                given["Authorization"] = f"Bearer {key}"
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, data, given)
            reply = connection.getresponse()
            self.reply_headers = {name.lower(): value for name, value in reply.getheaders()}
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def chat(self, key, model="small", text="hello", **more):
        """Asks for a chat completion; gives status and the object."""
        body = {"model": model, "messages": [{"role": "user", "content": text}]} | more
        status, answer = self.ask("POST", "/v1/chat/completions", body, key)
        return status, json.loads(answer)

    def metrics(self):
        """{series: value}"""
        status, text = self.ask("GET", "/metrics", port=self.metrics_port)
        assert status == 200, text
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
        return {name: int(value) for name, value in lines}

    def eventually(self, what, check):
        """Waits until check gives something true; gives that."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            found = check()
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"no {what} within {SECONDS} s:\n{self.log()[-2000:]}")

    def stop(self):
        """Ends it; gives its exit code."""
        self.provider.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("the proxy does not end") from None


def entry(name, model):
    return {
        "model_name": name,
        "litellm_params": {
            "model": model,
            "api_base": "os.environ/PROXY_API_BASE",
            "api_key": "os.environ/PROXY_API_KEY",
        },
    }


def proxy_config(*entries, **more):
    """As the operator writes it."""
    entries = entries or (entry("small", "openai/small"), entry("vectors", "openai/vectors"))
    return {"model_list": list(entries), "litellm_settings": {"drop_params": True}} | more
