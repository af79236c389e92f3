"""How a provider is asked whether it can be reached, without LiteLLM."""

import contextlib
import socket
import threading
import time
import unittest
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
        find = lambda: (url or f"{self.server.url}/models", headers)
        found = provider.Provider(find, self.outcomes, lambda: self.now).state()
        return found["reachable"], found["reason"], found["status"]

    def test_what_an_answer_means(self):
        self.assertEqual(self.state(), (True, "Reachable", 200))
        self.assertEqual(self.state(f"{self.server.url}/none"), (True, "Reachable", 404))
        self.assertEqual(self.state(key="other"), (False, "KeyRefused", 401))
        self.assertEqual(self.state(f"http://127.0.0.1:{free_port()}/"), (False, "Unreachable", None))
        self.assertEqual(self.state("no address"), (False, "Unreachable", None))

    def test_an_answer_is_kept_for_a_while(self):
        asked = provider.Provider(lambda: (f"{self.server.url}/models", {}), self.outcomes, lambda: self.now)
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

        self.assertEqual(
            provider.Provider(unknown, self.outcomes).state(),
            {"reachable": None, "reason": "ProviderUnknown", "status": None},
        )

    def test_a_provider_that_answers_no_question_is_not_reachable(self):
        fails = (False, "QuestionsFail", 500)
        for status in (500, 500):
            self.outcomes.note(status)
        self.assertEqual(self.state(), (True, "Reachable", 200), "two may be chance")
        self.outcomes.note(429)
        self.outcomes.note(500)
        self.assertEqual(self.state(), fails)
        self.outcomes.note(499)
        self.assertEqual(self.state(), fails, "nobody waited for that answer")
        # What the provider says of itself tells more.
        self.assertEqual(self.state(key="other"), (False, "KeyRefused", 401))
        self.now = provider.RECENT_SECONDS
        self.assertEqual(self.state(), fails)
        self.now += 1
        self.assertEqual(self.state(), (True, "Reachable", 200), "long ago")
        for _ in range(provider.FAILED_IN_A_ROW):
            self.outcomes.note(401)
        self.assertEqual(self.state(), (False, "QuestionsFail", 401))
        # A request that the provider does not take is an answer.
        self.outcomes.note(400)
        self.assertEqual(self.state(), (True, "Reachable", 200))


if __name__ == "__main__":
    unittest.main()
