"""What the place holder of an agent answers."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request
from http.server import ThreadingHTTPServer

from convoke_agent.__main__ import Handler

RUNTIME = pathlib.Path(__file__).parents[1]
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
SECONDS = 10


class Answers(unittest.TestCase):
    def setUp(self):
        handler = type("One", (Handler,), {"environment": {"AGENT_NAME": "critic", "AGENT_DESCRIPTION": "Reviews."}})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}"

    def ask(self, path, data=None, **headers):
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with OPENER.open(request, timeout=SECONDS) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def test_probes(self):
        self.assertEqual(self.ask("/health"), (200, {"status": "ok"}))
        self.assertEqual(self.ask("/ready?now"), (200, {"status": "ok"}))

    def test_the_card_says_who_it_is_and_where(self):
        status, card = self.ask("/.well-known/agent-card.json", Host="agent-critic.team.svc:8000")
        self.assertEqual((status, card["name"], card["description"]), (200, "critic", "Reviews."))
        self.assertEqual(card["url"], "http://agent-critic.team.svc:8000/")

    def test_a_host_that_is_none_does_not_get_into_the_card(self):
        self.assertEqual(
            self.ask("/.well-known/agent-card.json", Host="evil.example/x?")[1]["url"],
            self.url.replace("127.0.0.1", "localhost") + "/",
        )

    def test_everything_else_is_refused_with_the_reason(self):
        for path, data in (("/", None), ("/v1/chat/completions", b"{}")):
            status, body = self.ask(path, data)
            self.assertEqual(status, 501)
            self.assertIn("asks no model", body["error"])


class Process(unittest.TestCase):
    def test_sigterm_ends_it(self):
        with subprocess.Popen(
            [sys.executable, "-B", "-m", "convoke_agent"],
            cwd=RUNTIME,
            env=os.environ | {"PORT": "0", "AGENT_NAME": "critic"},
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                self.assertRegex(process.stdout.readline(), r"^critic serves on port \d+$")
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(SECONDS), 0)
            finally:
                process.kill()


if __name__ == "__main__":
    unittest.main()
