"""Probes, the card, chat completions, and what is refused. Models that fail are told as what they are."""

import asyncio
import contextlib
import json
import logging
import socket
import tempfile
import unittest
from unittest import mock

import httpx

from convoke_agent import logs
from convoke_agent.app import App
from convoke_agent.bodies import BYTES_A_VALUE
from convoke_agent.service import Service
from tests.support import Agent, Program, ScriptedModel, ask, ask_raw, free_port, opens, reason_of, wait_until

FAILURES = {
    "status 401": ([{"status": 401}], 502, "model_unauthorized"),
    "status 404": ([{"status": 404}], 502, "model_not_found"),
    "status 400": ([{"status": 400}], 502, "model_rejected"),
    "status 429": ([{"status": 429, "headers": {"Retry-After": "0"}}], 429, "model_rate_limited"),
    "status 500": ([{"status": 500, "headers": {"Retry-After": "0"}}], 502, "model_error"),
    "is garbage": ([{"garbage": True}], 502, "model_bad_answer"),
    "is empty": ([{"text": ""}], 502, "model_bad_answer"),
    "is huge": ([{"huge": 10 << 20}], 502, "model_answer_too_large"),
    "never comes": ([{"hang": True}], 504, "seconds_exceeded"),
    "never ends": ([{"tool": "delegate_to_nobody", "arguments": {"message": "x"}}], 500, "steps_exceeded"),
}
KEY = "sk-secret-canary"


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        rules = [{"prompt": f"answer {name}", "steps": steps} for name, (steps, _, _) in FAILURES.items()]
        rules.append({"prompt": "slowly", "steps": [{"delay": 0.3, "text": "one two three"}]})
        cls.model = ScriptedModel(rules)
        cls.addClassCleanup(cls.model.stop)
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        config = {
            "name": "critic",
            "description": "Reviews.",
            "commit": "c" * 40,
            "agenticLoop": {"maxSeconds": 3, "maxSteps": 4},
            "modelParameters": {"temperature": 0.25, "maxTokens": 64, "extraBody": {"top_k": 3}},
            "modelHeaders": [{"name": "X-Org", "env": "ORG"}, {"name": "X-Team", "env": "TEAM", "optional": True}],
            "peers": [{"name": "nobody", "url": f"{cls.model.url}/nobody"}],
            "a2a": {"version": "1.2.0", "skills": [{"id": "r", "name": "Review", "description": "d", "tags": ["t"]}]},
        }
        with open(f"{cls.folder}/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        environment = {"MODEL_API_URL": cls.model.url, "OPENAI_API_KEY": KEY, "ORG": "an-org"}
        environment |= {"AGENT_CONFIG_FILE": f"{cls.folder}/config.json", "AGENT_CONFIG_HASH": "0a1b2c3d"}
        cls.agent = Agent("other-name", environment)
        cls.addClassCleanup(cls.agent.stop)

    def test_probes(self):
        self.assertEqual(ask(self.agent.url, "/health"), (200, {"status": "ok"}))
        status, body = ask(self.agent.url, "/ready")
        self.assertEqual((status, body["reason"]), (200, None))
        self.assertEqual((body["hash"], body["commit"]), ("0a1b2c3d", "c" * 40))

    def test_the_card_suits_both_versions(self):
        headers = {"Host": "agent-critic.team.svc:8000"}
        status, card = ask(self.agent.url, "/.well-known/agent-card.json", headers=headers)
        self.assertEqual(
            (status, card["name"], card["description"], card["version"]), (200, "critic", "Reviews.", "1.2.0")
        )
        base = "http://agent-critic.team.svc:8000/"
        interfaces = [
            (one["url"], one["protocolBinding"], one["protocolVersion"]) for one in card["supportedInterfaces"]
        ]
        self.assertEqual(interfaces, [(base, "JSONRPC", "1.0"), (base, "JSONRPC", "0.3")])
        self.assertEqual((card["url"], card["preferredTransport"]), (base, "JSONRPC"))
        self.assertEqual([one["name"] for one in card["skills"]], ["Review"])
        extension = card["capabilities"]["extensions"][0]
        self.assertEqual(extension["uri"], "https://convoke.dev/a2a/configuration/v1")
        self.assertEqual(extension["params"], {"hash": "0a1b2c3d", "commit": "c" * 40, "tools": {}})
        _, old = ask(self.agent.url, "/.well-known/agent.json", headers=headers)
        self.assertEqual((old["url"], old["protocolVersion"][:3]), (base, "0.3"))
        self.assertNotIn("supportedInterfaces", old)

    def test_a_host_that_is_none_does_not_get_into_the_card(self):
        _, card = ask(self.agent.url, "/.well-known/agent-card.json", headers={"Host": "evil.example/x?"})
        self.assertEqual(card["url"], f"http://localhost:{self.agent.port}/")

    def test_ipv6_is_served(self):
        try:
            status, _ = ask(f"http://[::1]:{self.agent.port}", "/health")
        except OSError as error:
            self.skipTest(f"there is no IPv6: {error}")
        self.assertEqual(status, 200)

    def test_a_chat_completion(self):
        status, body = self.agent.chat("hello", model="gpt-x")
        self.assertEqual(status, 200)
        self.assertEqual((body["object"], body["model"]), ("chat.completion", "gpt-x"))
        choice = {"index": 0, "message": {"role": "assistant", "content": "echo: hello"}, "finish_reason": "stop"}
        self.assertEqual(body["choices"], [choice])
        self.assertEqual(body["usage"], {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16})
        self.assertEqual(ask(self.agent.url, "/v1/models")[1]["data"][0]["id"], "critic")

    def test_what_the_model_is_asked(self):
        self.agent.chat("what do you see?")
        asked = self.model.asked("what do you see?")[0]
        self.assertEqual(asked["headers"]["authorization"], f"Bearer {KEY}")
        self.assertEqual(asked["headers"]["x-org"], "an-org")
        self.assertNotIn("x-team", asked["headers"])
        body = asked["body"]
        self.assertEqual((body["model"], body["temperature"], body["top_k"]), ("scripted", 0.25, 3))
        self.assertIn(64, (body.get("max_tokens"), body.get("max_completion_tokens")))

    def test_the_messages_given_are_the_history(self):
        messages = [
            {"role": "system", "content": "Be terse."},
            {"role": "user", "content": "first question"},
            {"role": "assistant", "content": "first answer"},
            {"role": "user", "content": [{"type": "text", "text": "second question"}]},
        ]
        status, _ = ask(self.agent.url, "/v1/chat/completions", {"messages": messages})
        self.assertEqual(status, 200)
        seen = self.model.asked("second question")[0]["body"]["messages"]
        self.assertEqual([one["content"] for one in seen[-3:]], ["first question", "first answer", "second question"])
        self.assertIn("Be terse.", [one["content"] for one in seen])

    def test_a_stream_ends_with_the_usage(self):
        body = {"messages": [{"role": "user", "content": "slowly"}], "stream": True}
        status, content, headers = ask_raw(self.agent.url, "/v1/chat/completions", body)
        self.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream; charset=utf-8"))
        lines = [line[6:] for line in content.decode().split("\n\n") if line]
        self.assertEqual(lines.pop(), "[DONE]")
        chunks = [json.loads(line) for line in lines]
        text = "".join(one["choices"][0]["delta"].get("content", "") for one in chunks[:-1])
        self.assertEqual(text, "one two three")
        self.assertEqual(chunks[-2]["choices"][0]["finish_reason"], "stop")
        self.assertEqual((chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]), ([], 5))

    def test_a_model_that_fails_is_told_and_the_agent_stays_well(self):
        for name, (_, status, reason) in FAILURES.items():
            with self.subTest(name, by="chat"):
                got, body = self.agent.chat(f"answer {name}")
                self.assertEqual((got, body["error"]["code"]), (status, reason))
                self.assertNotIn(KEY, json.dumps(body))
            # The others are told in the same way.
            if name not in ("status 401", "is garbage", "never ends"):
                continue
            with self.subTest(name, by="stream"):
                got, body = self.agent.chat(f"answer {name}", stream=True)
                self.assertEqual((got, body["error"]["code"]), (status, reason))
            with self.subTest(name, by="A2A"):
                task = self.agent.send(f"answer {name}")
                self.assertEqual((task["status"]["state"], reason_of(task)), ("TASK_STATE_FAILED", reason))
        self.assertEqual(self.agent.said("still there?"), "echo: still there?")

    def test_retries_are_bounded(self):
        self.agent.chat("answer status 429 counted")
        self.assertEqual(len(self.model.asked("429 counted")), 3)

    def test_chat_requests_that_are_wrong(self):
        path = "/v1/chat/completions"
        for body, status, code in (
            ({"messages": []}, 400, "empty_prompt"),
            ({"messages": [{"role": "user", "content": "  "}]}, 400, "empty_prompt"),
            ({"messages": [{"role": "wizard", "content": "x"}]}, 400, "bad_request"),
            ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "bad_request"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "bad_request"),
            (["x"], 400, "bad_request"),
            (b"{", 400, "bad_request"),
            (b'{"a": "\xff"}', 400, "bad_request"),
            (b"[" * 10_000, 400, "bad_request"),
            (b" " * (2 << 20), 413, "request_too_large"),
            (b'{"a": [' + b"[]," * 20_000 + b"0]}", 413, "request_too_large"),
            (b'{"a": [' + b'"\\"",' * 20_000 + b"0]}", 413, "request_too_large"),
        ):
            with self.subTest(code, body=str(body)[:60]):
                got, answer = ask(self.agent.url, path, body)
                self.assertEqual((got, answer["error"]["code"]), (status, code))
        got, answer = ask(self.agent.url, path, b"x", headers={"Content-Type": "text/plain"})
        self.assertEqual((got, answer["error"]["code"]), (415, "unsupported_media_type"))
        self.assertEqual(ask(self.agent.url, path)[0], 405)

    def test_marks_in_texts_are_no_values(self):
        self.assertEqual(self.agent.said('[{,"\\' * 20_000)[:10], 'echo: [{,"')

    def test_a2a_requests_that_are_wrong(self):
        for body, status, code in ((b"{", 400, -32700), (b"\xff", 400, -32700), (b" " * (2 << 20), 413, -32600)):
            with self.subTest(code):
                got, answer = ask(self.agent.url, "/", body)
                self.assertEqual((got, answer["jsonrpc"], answer["error"]["code"]), (status, "2.0", code))
        got, answer = ask(self.agent.url, "/", b"x", headers={"Content-Type": "text/plain"})
        self.assertEqual((got, answer["error"]["code"]), (415, -32005))
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": [[]] * 20_000}
        got, answer = ask(self.agent.url, "/", body)
        self.assertEqual((got, answer["error"]["code"]), (413, -32600))
        self.assertEqual(answer["error"]["message"], "the body has more than 20000 values")
        for body, code in (([], -32600), ({"jsonrpc": "1.0", "method": "SendMessage", "id": 1}, -32600)):
            self.assertEqual(ask(self.agent.url, "/", body)[1]["error"]["code"], code)
        self.assertEqual(self.agent.rpc("Dance", {})["error"]["code"], -32601)
        empty = self.agent.send(" ")["error"]
        self.assertEqual((empty["code"], empty["data"][0]["metadata"]["reason"]), (-32602, "empty_prompt"))
        self.assertEqual(ask(self.agent.url, "/", method="PUT")[0], 405)

    def test_other_paths(self):
        for path in ("/nothing", "/memory/sessions", "/memory/sessions/x"):
            status, body = ask(self.agent.url, path)
            self.assertEqual((status, body["error"]["reason"]), (404, "not_found"))
        self.assertEqual(ask(self.agent.url, "/v1/nothing")[1]["error"]["code"], "not_found")

    def test_a_client_that_goes_ends_the_question(self):
        before = self.model.model.abandoned
        with self.assertRaises(OSError):
            ask(
                self.agent.url,
                "/v1/chat/completions",
                {"messages": [{"role": "user", "content": "answer never comes"}]},
                seconds=0.7,
            )
        wait_until(lambda: self.model.model.abandoned > before, "the model call is given up", 2)


class InProcess(unittest.IsolatedAsyncioTestCase):
    """The interface without a server before it: the room that questions take, and the end."""

    async def asyncSetUp(self):
        model = ScriptedModel([{"prompt": "hang", "steps": [{"hang": True}]}])
        self.addCleanup(model.stop)
        logs.LOGGER.addHandler(silence := logging.NullHandler())
        self.addCleanup(logs.LOGGER.removeHandler, silence)
        self.service = Service({"MODEL_API_URL": model.url, "MODEL_NAME": "m"})
        await self.service.start()
        self.addAsyncCleanup(self.service.close)
        self.addAsyncCleanup(self.service.drain, 0)
        transport = httpx.ASGITransport(App(self.service, {}).asgi())
        self.http = await self.enterAsyncContext(httpx.AsyncClient(transport=transport, base_url="http://agent"))

    async def running(self, path, body):
        """Sends a question that hangs. Gives the parsed bodies, and the room that is taken meanwhile."""
        parsed = []

        def json_of(content):
            parsed.append(json.loads(content))
            return parsed[-1]

        with mock.patch("convoke_agent.bodies.json_of", json_of):
            asked = asyncio.create_task(self.http.post(path, json=body))
            async with asyncio.timeout(60):
                while not self.service.running:
                    await asyncio.sleep(0.02)
        taken = self.service.room.taken
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        for task in list(self.service.running):
            task.cancel()
        async with asyncio.timeout(60):
            while self.service.running:
                await asyncio.sleep(0.02)
        self.assertEqual((self.service.room.taken, self.service.reading.taken), (0, 0))
        return parsed, taken

    async def test_a_question_takes_its_bodys_room_over_once(self):
        text = "hang " + "x" * 500_000
        chat = {"messages": [{"role": "user", "content": text}]}
        new = {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": text}, {"data": [[]] * 1000}]}
        old = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": text}]}
        cases = [("/v1/chat/completions", chat, 0)]
        for method, message, values in ("SendMessage", new, 2000), ("message/send", old, 0), ("message/stream", old, 0):
            cases.append(("/", {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}, values))
        for path, body, values in cases:
            with self.subTest(body.get("method", path)):
                parsed, taken = await self.running(path, body)
                self.assertGreater(taken, 500_000 + values * BYTES_A_VALUE)
                self.assertLess(taken, 520_000 + (values + 30) * BYTES_A_VALUE)
                # Nobody holds the parsed body while the question runs.
                self.assertEqual(parsed, [{}])


    async def test_while_it_stops_connections_end(self):
        chat = {"messages": [{"role": "user", "content": "hello"}]}
        asked = lambda: [self.http.get("/ready"), self.http.get("/nothing"), self.http.post("/v1/models", json=chat)]
        for reply in await asyncio.gather(*asked()):
            self.assertNotIn("connection", reply.headers)
        await self.service.drain(0)
        for reply in await asyncio.gather(*asked()):
            self.assertEqual(reply.headers["connection"], "close")


class Reading(unittest.TestCase):
    """An agent with room for 1 MiB of bodies that are read, and as much for questions."""

    def setUp(self):
        model = ScriptedModel()
        self.addCleanup(model.stop)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # As it is run, with other bounds.
        source = "import sys, convoke_agent.__main__ as it; from convoke_agent import limits; limits.READ_SECONDS = 5; "
        source += "limits.MAX_READING_BYTES = limits.MAX_REQUESTS_BYTES = 1 << 20; sys.exit(it.main())"
        program = Program(["-c", source], {"MODEL_API_URL": model.url, "MODEL_NAME": "m", "PORT": str(self.port)})
        self.addCleanup(program.stop)
        wait_until(lambda: opens(self.port) and ask(self.url, "/ready")[0] == 200, "it is ready")

    def silent(self, path, size):
        """A connection that sends so much of a body and then nothing."""
        sock = self.enterContext(contextlib.closing(socket.create_connection(("127.0.0.1", self.port), 30)))
        head = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {1 << 20}"]
        sock.sendall("\r\n".join([*head, "", " " * size]).encode())
        return sock

    def chat(self, size=0):
        body = {"messages": [{"role": "user", "content": "hello" + " " * size}]}
        status, answer = ask(self.url, "/v1/chat/completions", body)
        return status if status == 200 else answer["error"]["code"]

    def test_who_sends_and_then_waits_takes_room_for_a_while_only(self):
        silent = [self.silent(path, 520_000) for path in ("/", "/v1/chat/completions")]
        wait_until(lambda: self.chat(20_000) == "overloaded", "both were read", 4)
        for sock in silent:
            answer = sock.makefile("rb").read()
            self.assertIn(b" 400 ", answer.split(b"\r\n")[0])
            self.assertIn(b"the body did not come within 5 seconds", answer)
        self.assertEqual(self.chat(20_000), 200)

    def test_what_is_read_takes_no_room_from_questions(self):
        self.silent("/", 900_000)
        wait_until(lambda: self.chat(200_000) == "overloaded", "it was read", 4)
        self.assertEqual(self.chat(100_000), 200)


class Secrets(unittest.IsolatedAsyncioTestCase):
    async def test_ready_tells_of_a_key_with_a_line_break(self):
        environment = {"MODEL_API_URL": "http://127.0.0.1:9", "MODEL_NAME": "m", "OPENAI_API_KEY": f"{KEY}\n"}
        service = Service(environment)
        with self.assertLogs(logs.LOGGER, "WARNING") as told:
            await service.start()
        self.addAsyncCleanup(service.close)
        body = service.ready_body()
        self.assertEqual(body["status"], "not ready")
        self.assertIn("OPENAI_API_KEY: it contains a line break", body["reason"])
        self.assertNotIn(KEY, f"{body} {told.output} {[one.__dict__ for one in told.records]}")


class Unready(unittest.TestCase):
    def test_bad_settings_are_told_and_nothing_is_answered(self):
        agent = Agent("critic", {"AGENTIC_LOOP_MAX_STEPS": "0"}, wait=False)
        self.addCleanup(agent.stop)
        reason = wait_until(
            lambda: (
                (agent.state()[1] or {}).get("reason") not in (None, "the agent starts") and agent.state()[1]["reason"]
            ),
            "the agent tells",
        )
        self.assertIn("MODEL_API_URL: it is missing", reason)
        self.assertIn("AGENTIC_LOOP_MAX_STEPS: ", reason)
        self.assertEqual(ask(agent.url, "/health")[0], 200)
        self.assertEqual(agent.state()[0], 503)
        status, body = agent.chat("hello")
        self.assertEqual((status, body["error"]["code"]), (503, "not_ready"))
        self.assertEqual(agent.rpc("SendMessage", {})["error"]["data"]["reason"], "not_ready")


if __name__ == "__main__":
    unittest.main()
