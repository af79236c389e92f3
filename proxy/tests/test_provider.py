"""How a provider is asked whether it can be reached, without LiteLLM."""

import contextlib
import json
import socket
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

from convoke_proxy import provider

from .provider import Provider
from .running import free_port

KEY = "sk-key"


def resolve(model, api_base=None, api_key=None):
    """As LiteLLM: the part before the slash names the provider."""
    name, slash, rest = model.partition("/")
    if not slash:
        raise ValueError("no provider")
    return rest, name, api_key, api_base


def trickle(listener):
    """Answers whoever connects with one byte of a header after the other, for ever."""
    with contextlib.suppress(OSError), listener.accept()[0] as client:
        client.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            client.sendall(b"x")
            time.sleep(0.05)


@contextlib.contextmanager
def answering(status, said, **headers):
    """A server that answers everything so; gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(said.encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/models"
    finally:
        server.shutdown()
        server.server_close()


class Questions(unittest.TestCase):
    def question(self, model, base=None, key=KEY):
        return provider.question({"model": model, "api_base": base, "api_key": key}, resolve)

    def test_each_provider_is_asked_in_its_way(self):
        bearer = {"authorization": f"Bearer {KEY}"}
        for model, base, url, headers in (
            ("openai/gpt", None, "https://api.openai.com/v1/models", bearer),
            ("openai/*", "http://host/v1/", "http://host/v1/models", bearer),
            ("*", "http://host/v1", "http://host/v1/models", bearer),
            ("ollama/llama", "http://host:11434", "http://host:11434/api/tags", {}),
            ("gemini/one", None, "https://generativelanguage.googleapis.com/v1beta/models", {"x-goog-api-key": KEY}),
            (
                "anthropic/claude",
                "http://host/v1",
                "http://host/v1/models",
                {"x-api-key": KEY, "anthropic-version": provider.ANTHROPIC_VERSION},
            ),
        ):
            with self.subTest(model=model, base=base):
                self.assertEqual(self.question(model, base), (url, headers))
        self.assertEqual(self.question("openai/gpt", "http://host", None)[1], {})

    def test_who_has_no_address_is_unknown(self):
        for model in ("bedrock/one", "*"):
            with self.assertRaises(provider.Unknown):
                self.question(model)


class Answers(unittest.TestCase):
    def setUp(self):
        self.server = Provider(KEY)
        self.addCleanup(self.server.close)
        self.now = 0
        self.outcomes = provider.Outcomes(lambda: self.now)

    def state(self, url=None, key=KEY):
        headers = {"authorization": f"Bearer {key}"}
        return self.found(lambda: (url or f"{self.server.url}/models", headers))

    def found(self, find):
        self.said = []
        found = provider.Provider(find, self.outcomes, self.said.append, lambda: self.now).state()
        return found["reachable"], found["reason"], found["status"]

    def test_what_an_answer_means(self):
        self.assertEqual(self.state(), (True, "Reachable", 200))
        self.assertEqual(self.state(f"{self.server.url}/none"), (True, "Reachable", 404))
        self.assertEqual(self.state(key="other"), (False, "KeyRefused", 401))
        self.assertEqual(self.state(f"http://127.0.0.1:{free_port()}/"), (False, "Unreachable", None))

    def test_an_answer_is_kept_for_a_while(self):
        find = lambda: (f"{self.server.url}/models", {})
        asked = provider.Provider(find, self.outcomes, self.fail, lambda: self.now)
        for now, times in ((0, 1), (30, 1), (31, 2), (32, 2)):
            self.now = now
            asked.state()
            self.assertEqual(len(self.server.requests), times)

    def test_a_provider_that_trickles_is_given_up_in_time(self):
        trickling = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(trickling.close)
        threading.Thread(target=trickle, args=(trickling,), daemon=True).start()
        began = time.monotonic()
        with mock.patch.object(provider, "LOOK_SECONDS", 1):
            found = self.state(f"http://127.0.0.1:{trickling.getsockname()[1]}/v1/models")
        self.assertEqual(found, (False, "Unreachable", None))
        self.assertLess(time.monotonic() - began, 5)

    def test_a_name_that_is_looked_up_for_long_is_given_up_in_time(self):
        free = threading.Event()
        self.addCleanup(free.set)

        def never(*_, **__):
            free.wait(60)
            raise socket.gaierror

        began = time.monotonic()
        with mock.patch.object(provider, "LOOK_SECONDS", 1), mock.patch.object(socket, "getaddrinfo", never):
            found = self.state("http://provider.example/v1/models")
        self.assertEqual(found, (False, "Unreachable", None))
        self.assertLess(time.monotonic() - began, 5)

    def test_an_unknown_provider_is_neither(self):
        def unknown():
            raise provider.Unknown

        self.assertEqual(self.found(unknown), (None, "ProviderUnknown", None))
        self.assertEqual(self.said, [])

    def test_what_cannot_be_asked_is_unknown_and_told_without_its_values(self):
        for odd in ({"api_key": 123}, {"api_base": 5}, {"api_base": ["x"]}):
            with self.subTest(odd=odd):
                parameters = {"model": "anthropic/claude", "api_base": self.server.url, "api_key": KEY} | odd
                found = self.found(lambda parameters=parameters: provider.question(parameters, resolve))
                self.assertEqual(found, (None, "ProviderUnknown", None))
                self.assertEqual(len(self.said), 1)
                self.assertRegex(self.said[0], r"^the provider cannot be asked: [A-Za-z]+$")

    def test_a_question_that_cannot_be_sent_is_unknown(self):
        for url, key in (
            ("no address", KEY),
            ("http://host:port/", KEY),
            ("ftp://127.0.0.1/", KEY),
            ("http://127.0.0.1:99999/", KEY),
            (None, "sk-\u00e9"),
            (None, "sk-\0"),
        ):
            with self.subTest(url=url, key=key):
                self.assertEqual(self.state(url, key), (None, "ProviderUnknown", None))
                self.assertEqual(len(self.said), 1)
                self.assertRegex(self.said[0], r"^the provider cannot be asked: [A-Za-z]+$")
        self.assertEqual(self.server.requests, [])

    def test_a_400_counts_though_the_rest_of_it_is_not_as_it_should_be(self):
        google = {provider.GOOGLE_KEY: KEY}
        for more in ({"Content_Encoding": "gzip"}, {"Content_Length": "1000"}):
            with self.subTest(more=more), answering(400, "no more", **more) as url:
                self.assertEqual(self.found(lambda url=url: (url, google)), (None, "ProviderUnknown", 400))

    def test_a_400_tells_of_the_key_only_where_it_is_google_that_says_so(self):
        refusal = json.dumps({"error": {"code": 400, "details": [{"reason": "API_KEY_INVALID"}]}})
        google = {provider.GOOGLE_KEY: KEY}
        for said, headers, expected in (
            (refusal, google, (False, "KeyRefused", 400)),
            ('{"error": "a field is wrong"}', google, (None, "ProviderUnknown", 400)),
            ("x" * provider.MOST_SAID + refusal, google, (None, "ProviderUnknown", 400)),
            (refusal, {"authorization": KEY}, (None, "ProviderUnknown", 400)),
        ):
            with self.subTest(said=said[:30], headers=headers), answering(400, said) as url:
                self.assertEqual(self.found(lambda url=url, headers=headers: (url, headers)), expected)

    def note(self, *statuses, agent="a", model="m"):
        for status in statuses:
            self.outcomes.note(agent, model, status)

    def test_a_provider_that_answers_no_question_is_not_reachable(self):
        reachable, fails = (True, "Reachable", 200), (False, "QuestionsFail", 500)
        self.note(500, 500)
        self.assertEqual(self.state(), reachable, "two may be chance")
        self.note(429, 499, 400, 404, 307)
        self.assertEqual(self.state(), reachable, "these are not the provider's fault")
        self.note(500)
        self.assertEqual(self.state(), fails)
        self.note(429, 499, 400, 307)
        self.assertEqual(self.state(), fails, "nor are they answers")
        # What the provider says of itself tells more.
        self.assertEqual(self.state(key="other"), (False, "KeyRefused", 401))
        self.now = provider.RECENT_SECONDS
        self.assertEqual(self.state(), fails)
        self.now += 1
        self.assertEqual(self.state(), reachable, "long ago")
        self.note(401, 401, 401)
        self.assertEqual(self.state(), (False, "QuestionsFail", 401))
        self.note(200)
        self.assertEqual(self.state(), reachable)

    def test_one_agent_asks_one_model_again_and_again(self):
        for agent, model in (("a", "m"), ("b", "m"), ("a", "n"), ("b", "n"), ("c", "m")):
            self.note(500, 500, agent=agent, model=model)
        self.assertIsNone(self.outcomes.failing())
        self.note(401, agent="b", model="n")
        self.assertEqual(self.outcomes.failing(), 401)
        # The provider answers somebody: that one may not ask this model.
        self.note(200, agent="c", model="m")
        self.assertIsNone(self.outcomes.failing())
        self.note(401, 401, agent="b", model="n")
        self.assertIsNone(self.outcomes.failing(), "it begins anew")

    def test_few_runs_are_kept(self):
        for number in range(provider.MOST_RUNS + 5):
            self.note(500, 500, agent=f"a{number}")
        self.assertEqual(len(self.outcomes.runs), provider.MOST_RUNS)
        self.note(500, agent="a0")
        self.assertIsNone(self.outcomes.failing(), "it was forgotten")
        self.note(500, agent="a9")
        self.assertEqual(self.outcomes.failing(), 500)


if __name__ == "__main__":
    unittest.main()
