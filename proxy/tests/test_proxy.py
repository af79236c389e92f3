"""The proxy as it runs: LiteLLM behind the gate, a provider behind LiteLLM."""

import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import time
import unittest

from convoke_proxy import config, listen

from .provider import ANSWER, FAIL
from .test_listen import has_ipv6
from .running import MASTER_KEY, PROVIDER_KEY, PROXY, SIGNING_KEY, START_SECONDS, Running, entry, key, proxy_config

ISSUED = int(time.time()) - 86400
ENTRIES = (entry("small", "openai/small"), entry("vectors", "openai/vectors"), entry("team/*", "openai/*"))
CANARY = "canary-3f9a"
# What may be asked with a key, as the documentation says it.
ALLOWED = {
    ("POST", "/v1/chat/completions"),
    ("POST", "/chat/completions"),
    ("POST", "/v1/embeddings"),
    ("POST", "/embeddings"),
    ("GET", "/v1/models"),
    ("GET", "/models"),
}
OPEN = {(method, path) for method in ("GET", "HEAD") for path in ("/health/liveliness", "/health/readiness")}
# LiteLLM has about this many: with far fewer, the list is not all of them.
LEAST_ROUTES = 700


class Proxy(unittest.TestCase):
    """One proxy for all tests; each uses an agent of its own, so that none sees another's counts."""

    @classmethod
    def setUpClass(cls):
        cls.agents = [(name, "1-a", ISSUED) for name in ("writer", "reader", "streamer", "embedder", "failing")]
        # LiteLLM takes long to import: at the same time.
        cls.routes = subprocess.Popen(
            [sys.executable, "-m", "tests.routes"],
            cwd=PROXY,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        cls.addClassCleanup(cls.routes.stdout.close)
        cls.addClassCleanup(cls.routes.wait)
        cls.proxy = Running(proxy_config(*ENTRIES), cls.agents, {"MODEL_PROXY_EXTRA_FIELDS": "top_k"})
        cls.addClassCleanup(cls.proxy.stop)
        cls.proxy.wait()

    @unittest.skipUnless(hasattr(resource, "prlimit"), "only Linux tells the limits of another process")
    def test_it_may_open_as_many_files_as_its_connections_need(self):
        soft, hard = resource.prlimit(self.proxy.process.pid, resource.RLIMIT_NOFILE)
        self.assertEqual(soft, listen.FILES if hard == resource.RLIM_INFINITY else min(listen.FILES, hard))

    def key(self, agent="writer"):
        return key(agent, issued=ISSUED)

    def error(self, answer, status, code):
        """Checks that an answer is an error in OpenAI's form."""
        self.assertEqual(answer[0], status, answer)
        body = answer[1] if isinstance(answer[1], dict) else json.loads(answer[1])
        self.assertEqual(set(body["error"]), {"message", "type", "param", "code"})
        self.assertEqual(body["error"]["code"], code)

    def asked(self, text):
        """What the provider was sent for a prompt with a text."""
        return [sent for sent in self.proxy.provider.requests if text in json.dumps(sent[3])]

    def test_a_good_key_gets_an_answer_and_the_provider_its_own_key(self):
        status, answer = self.proxy.chat(self.key(), text="who asks")
        self.assertEqual((status, answer["choices"][0]["message"]["content"]), (200, ANSWER))
        [(_, path, headers, body)] = self.asked("who asks")
        self.assertEqual((path, headers["authorization"]), ("/v1/chat/completions", f"Bearer {PROVIDER_KEY}"))
        self.assertEqual(body, {"model": "small", "messages": [{"role": "user", "content": "who asks"}]})
        # Nothing of LiteLLM's own headers, which name the provider's address.
        self.assertEqual(set(self.proxy.reply_headers), {"content-length", "content-type", "date"})

    def test_nothing_of_a_request_but_its_body_reaches_litellm(self):
        headers = {"x-litellm-api-key": MASTER_KEY, "x-litellm-tags": CANARY, "x-api-key": MASTER_KEY}
        headers |= {"openai-organization": CANARY, "user-agent": CANARY, "host": "localhost/#@evil", "cookie": CANARY}
        body = {"model": "small", "messages": [{"role": "user", "content": "headers"}]}
        path = "/v1/chat/completions"
        status, text = self.proxy.ask("POST", path + "?api_base=http://evil", body, self.key(), headers)
        self.assertEqual(status, 200, text)
        [(_, _, sent, _)] = self.asked("headers")
        self.assertNotIn(CANARY, json.dumps(sent))
        self.assertNotIn(self.key(), json.dumps(sent))

    def test_without_a_good_key_nothing_is_answered(self):
        body = {"model": "small", "messages": [{"role": "user", "content": "no key"}]}
        path = "/v1/chat/completions"
        self.error(self.proxy.ask("POST", path, body), 401, "invalid_api_key")
        for bad in (
            "sk-1234",
            MASTER_KEY,
            SIGNING_KEY,
            self.key() + "0",
            key("writer", issued=ISSUED, namespace="other"),
            key("writer", issued=ISSUED - 1),
            key("writer", uid="2-b", issued=ISSUED),
            key("stranger", issued=int(time.time()) - 700),
        ):
            with self.subTest(key=bad):
                self.error(self.proxy.ask("POST", path, body, bad), 401, "invalid_api_key")
                self.error(self.proxy.ask("GET", "/key/list", None, bad), 401, "invalid_api_key")
        for name in ("x-api-key", "api-key", "x-litellm-api-key", "x-goog-api-key"):
            self.assertEqual(self.proxy.ask("POST", path, body, headers={name: self.key()})[0], 401)
        for value in (self.key(), f"Basic {self.key()}", f"Bearer  {self.key()}", f"Bearer {self.key()} x"):
            self.assertEqual(self.proxy.ask("POST", path, body, headers={"Authorization": value})[0], 401)
        self.assertEqual(self.asked("no key"), [])

    def test_the_list_decides_within_a_second_or_two(self):
        new = key("newcomer", issued=int(time.time()))
        self.assertEqual(self.proxy.chat(new)[0], 200)
        gone = key("leaver", issued=ISSUED)
        self.assertEqual(self.proxy.chat(gone)[0], 401)
        self.addCleanup(self.proxy.list, self.agents)
        self.proxy.list([*self.agents, ("leaver", "1-a", ISSUED)])
        self.proxy.eventually("answer for an agent of the list", lambda: self.proxy.chat(gone)[0] == 200)
        self.proxy.list(self.agents)
        self.proxy.eventually("end of an agent that left the list", lambda: self.proxy.chat(gone)[0] == 401)
        # It was not in the list: its tokens are counted without a name.
        self.assertFalse([name for name in self.proxy.metrics() if "newcomer" in name or "leaver" in name])

    def test_every_other_route_refuses_a_good_key(self):
        routes = {
            tuple(route) for route in json.loads(self.routes.communicate(timeout=START_SECONDS)[0].splitlines()[-1])
        }
        self.assertGreater(len(routes), LEAST_ROUTES)
        paths = {path for _, path in routes}
        self.assertLessEqual({"/key/generate", "/ui", "/mcp", "/v1/messages", "/config/update", "/"}, paths)
        self.assertLessEqual(ALLOWED, routes)
        routes |= {(method, path) for path in ("/unknown", "/docs", "/openapi.json") for method in ("GET", "POST")}
        answered = set()
        for method, path in sorted(routes - OPEN):
            path = re.sub(r"\{[^}]*\}", "x", path)
            status, text = self.proxy.ask(method, path, None, self.key())
            if status != 403:
                answered.add((method, path))
            elif method != "HEAD":
                self.error((status, text), 403, "route_not_allowed")
        self.assertEqual(answered, ALLOWED)
        near = (
            "/v1/chat/completions/",
            "//v1/chat/completions",
            "/V1/chat/completions",
            "/v1/../v1/models",
            "/v1/models/x",
        )
        near += ("/%76%31/key/list", "/openai/v1/chat/completions", "/health/liveliness/", "/health/x")
        for path in near:
            for method in ("GET", "POST"):
                self.assertEqual(self.proxy.ask(method, path, None, self.key())[0], 403, path)

    def test_both_listeners_are_on_ipv6_too(self):
        if not has_ipv6():
            self.skipTest("there is no IPv6")
        self.assertEqual(self.proxy.ask("GET", "/health/liveliness", host="::1")[0], 200)
        self.assertEqual(self.proxy.ask("GET", "/metrics", port=self.proxy.metrics_port, host="::1")[0], 200)
        answer = self.proxy.ask("GET", "/v1/models", key=self.key(), host="::1")
        self.assertEqual(answer[0], 200, answer)

    def test_health_is_open_and_says_little(self):
        for path in ("/health/liveliness", "/health/readiness"):
            self.assertEqual(self.proxy.ask("GET", path), (200, '{"status": "ok"}'))
            self.assertEqual(self.proxy.ask("POST", path)[0], 401)
        self.assertEqual(self.proxy.ask("GET", "/health")[0], 401)

    def test_no_power_of_litellm_passes(self):
        for power in (
            {"api_base": "http://127.0.0.1:1"},
            {"mock_response": "x"},
            {"metadata": {"tags": ["x"]}},
            {"fallbacks": ["small"]},
            {"user_config": {"model_list": []}},
        ):
            self.error(self.proxy.chat(self.key(), text="powers", **power), 400, "field_not_allowed")
        self.error(self.proxy.chat(self.key(), text="powers", tools=[{"type": "mcp", "server_url": "x"}]), 400, None)
        self.assertEqual(self.asked("powers"), [])
        body = json.dumps({"model": "small", "messages": [{"role": "user", "content": "powers"}], "api_base": "x"})
        twice = body[:-1] + ', "api_base": null, "api_base": "x"}'
        self.error(self.proxy.ask("POST", "/chat/completions", twice.encode(), self.key()), 400, "field_not_allowed")

    def test_a_field_that_the_owner_allows_reaches_the_provider(self):
        self.assertEqual(self.proxy.chat(self.key(), text="owner", top_k=3)[0], 200)
        [(_, _, _, body)] = self.asked("owner")
        self.assertEqual(body["top_k"], 3)

    def test_only_listed_models_are_asked(self):
        for model in ("large", "openai/small", "*", "", None, "anthropic/claude", "team/https://evil.test/v1"):
            self.error(self.proxy.chat(self.key(), model=model, text="models"), 404, "model_not_found")
        self.assertEqual(self.asked("models"), [])
        # Whatever is behind the pattern stays with its provider.
        for model in ("team/one", "team/anthropic/two"):
            self.assertEqual(self.proxy.chat(self.key(), model=model, text="pattern")[0], 200)
        sent = [body["model"] for _, _, _, body in self.asked("pattern")]
        self.assertEqual(sent, ["one", "anthropic/two"])

    def test_the_list_of_models_is_openai_s(self):
        for path in ("/v1/models", "/models", "/v1/models?return_wildcard_routes=true&scope=expand"):
            status, text = self.proxy.ask("GET", path, None, self.key())
            self.assertEqual(status, 200)
            found = [model["id"] for model in json.loads(text)["data"]]
            self.assertEqual([name for name in found if not name.startswith("team/")], ["small", "vectors"])

    def test_a_stream_is_a_stream_and_its_tokens_are_counted(self):
        body = {"model": "small", "messages": [{"role": "user", "content": "x"}], "stream": True}
        status, text = self.proxy.ask("POST", "/v1/chat/completions", body, self.key("streamer"))
        self.assertEqual(status, 200)
        self.assertTrue(text.rstrip().endswith("data: [DONE]"))
        chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        words = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
        self.assertEqual(words.strip(), ANSWER)
        # It did not ask for them.
        self.assertFalse([chunk for chunk in chunks if chunk.get("usage")])
        self.counted("streamer", "small", prompt=7, completion=3)

    def counted(self, agent, model, **expected):
        """Waits for an agent's tokens."""
        names = {
            f'convoke_model_tokens_total{{agent="{agent}",model="{model}",kind="{kind}"}}': kind for kind in expected
        }

        def found():
            values = self.proxy.metrics()
            return {kind: values.get(name) for name, kind in names.items()} == expected

        self.proxy.eventually(f"tokens of {agent}", found)

    def test_embeddings_are_answered_and_counted(self):
        body = {"model": "vectors", "input": "some text"}
        for path in ("/v1/embeddings", "/embeddings"):
            status, text = self.proxy.ask("POST", path, body, self.key("embedder"))
            self.assertEqual((status, json.loads(text)["data"][0]["embedding"]), (200, [0.5, 0.25]))
        self.counted("embedder", "vectors", prompt=10)

    def test_counts_have_an_agent_a_model_and_nothing_else(self):
        self.assertEqual(self.proxy.chat(self.key("reader"), model="team/one", text=CANARY)[0], 200)
        self.assertEqual(self.proxy.chat(self.key("reader"), text=f"{FAIL}400")[0], 400)
        self.counted("reader", "team/*", prompt=7, completion=3)
        values = self.proxy.metrics()
        self.assertEqual(values['convoke_model_requests_total{agent="reader",model="team/*",status="2xx"}'], 1)
        self.assertEqual(values['convoke_model_requests_total{agent="reader",model="small",status="4xx"}'], 1)
        labels = {label for name in values for label in re.findall(r'(\w+)="', name)}
        self.assertLessEqual(labels, {"agent", "model", "kind", "status", "reason"})
        self.assertEqual(self.proxy.ask("GET", "/", port=self.proxy.metrics_port)[0], 404)

    def test_the_provider_is_asked_for_its_models_only_and_seldom(self):
        looks = lambda: [sent[:2] for sent in self.proxy.provider.requests].count(("GET", "/v1/models"))
        before = looks()
        for _ in range(3):
            status, text = self.proxy.ask("GET", "/provider", port=self.proxy.metrics_port)
            self.assertEqual(
                (status, json.loads(text)), (200, {"reachable": True, "reason": "Reachable", "status": 200})
            )
        self.assertIn(looks() - before, (0, 1))
        self.assertGreater(looks(), 0)

    def test_too_large_or_encoded_bodies_are_refused(self):
        path = "/v1/chat/completions"
        self.assertEqual(self.proxy.ask("POST", path, b"x" * (17 << 20), self.key())[0], 413)
        self.assertEqual(self.proxy.ask("POST", path, b"x", self.key(), {"Content-Encoding": "gzip"})[0], 415)
        self.error(self.proxy.ask("POST", path, b"{", self.key()), 400, None)
        self.assertEqual(self.proxy.chat(self.key(), text="\ud800 lone")[0] // 100, 4)
        self.assertEqual(self.proxy.ask("POST", "/v1/embeddings", b"x" * (5 << 20), self.key())[0], 413)
        # It would become many times as large, and others would wait for that.
        lists = b'{"model": "small", "messages": [' + b"[]," * (5 << 20) + b"[]]}"
        self.assertEqual(self.proxy.ask("POST", path, lists, self.key())[0], 413)
        # What they held is free again.
        for _ in range(6):
            self.assertEqual(self.proxy.ask("POST", path, b"x" * (15 << 20), self.key())[0], 400)

    def test_a_web_socket_is_not_opened(self):
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        upgrade["Sec-WebSocket-Key"] = "AAAAAAAAAAAAAAAAAAAAAA=="
        self.assertEqual(self.proxy.ask("GET", "/v1/realtime", None, self.key(), upgrade)[0], 403)

    def test_a_failure_of_one_agent_shuts_nothing_off_for_another(self):
        for status in (401, 404, 429):
            self.assertEqual(self.proxy.chat(self.key("failing"), model="team/x", text=f"{FAIL}{status}")[0], status)
            self.assertEqual(self.proxy.chat(self.key(), model="team/x")[0], 200)

    def test_questions_that_all_fail_are_told_of_the_provider(self):
        said = lambda: json.loads(self.proxy.ask("GET", "/provider", port=self.proxy.metrics_port)[1])
        for _ in range(3):
            self.assertEqual(self.proxy.chat(self.key("failing"), model="team/x", text=f"{FAIL}500")[0], 500)
        self.assertEqual(said(), {"reachable": False, "reason": "QuestionsFail", "status": 500})
        self.assertEqual(self.proxy.chat(self.key(), model="team/x")[0], 200)
        self.assertEqual(said()["reason"], "Reachable")

    def test_logs_have_neither_keys_nor_prompts(self):
        for status in (400, 401, 429, 500):
            self.proxy.chat(self.key("failing"), text=f"{CANARY} {FAIL}{status}")
        self.proxy.chat(self.key(), text=CANARY)
        self.proxy.chat(self.key() + CANARY)
        self.proxy.ask("POST", f"/{CANARY}", {CANARY: 1}, self.key())
        self.proxy.eventually("line of a failure", lambda: "agent=failing status=500" in self.proxy.log())
        log = self.proxy.log()
        for secret in (CANARY, ANSWER, MASTER_KEY, SIGNING_KEY, PROVIDER_KEY, "sk-cvk-"):
            self.assertNotIn(secret, log)
        self.assertIn("serves on port", log)

    def test_it_connects_only_to_the_provider(self):
        connected = subprocess.run(["ss", "-tnpH"], capture_output=True, text=True, check=True).stdout
        mine = [line.split() for line in connected.splitlines() if f"pid={self.proxy.process.pid}," in line]
        self.assertEqual(
            {line[4].rpartition(":")[0].strip("[]").removeprefix("::ffff:") for line in mine} - {"127.0.0.1", "::1"}, set()
        )


class Hooks(unittest.TestCase):
    def test_litellm_refuses_what_did_not_come_through_the_gate(self):
        # LiteLLM asks the network for its list of models otherwise.
        os.environ.update(config.SETTINGS)
        from litellm.proxy._types import ProxyException
        from starlette.requests import Request

        from convoke_proxy import litellm_hooks

        scope = {"type": "http", "method": "GET", "path": "/key/list", "headers": []}
        with self.assertRaises(ProxyException) as caught:
            asyncio.run(litellm_hooks.authenticate(Request(scope), MASTER_KEY))
        self.assertEqual(str(caught.exception.code), "401")


class Ends(unittest.TestCase):
    def test_it_does_not_start_without_its_files(self):
        running = Running(proxy_config())
        self.addCleanup(running.stop)
        running.process.kill()
        running.process.wait()
        for name, expected in (("keys/master-key", "master-key: FileNotFoundError"), ("config.yaml", "No such file")):
            (running.folder / name).unlink()
            done = subprocess.run(running.process.args, env=running.env, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(expected, done.stderr)


if __name__ == "__main__":
    unittest.main()
