"""Another configuration, the end, what is logged, and traces."""

import asyncio
import concurrent.futures
import gzip
import http.client
import json
import os
import pathlib
import signal
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock

from convoke_agent.service import Service
from convoke_agent.settings import BadSettings
from convoke_agent.tool_servers import Connection
from tests.support import (
    Agent,
    Program,
    ScriptedModel,
    ToolServer,
    ask,
    ask_raw,
    free_port,
    opens,
    text_of,
    wait_until,
)


TELLING = """
from mcp.shared.exceptions import MCPError
def leak(text: str) -> str:
    'Tells.'
    return 'result-canary'
def breaks(text: str) -> str:
    raise ValueError('result-canary')
def refuses(text: str) -> str:
    raise MCPError(-32000, 'result-canary')
"""


class ConfigMap:
    """A mounted ConfigMap: links into a folder that is changed by the swap of one link."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.version = 0

    def write(self, config, instructions):
        self.version += 1
        data = self.folder / f"..v{self.version}"
        data.mkdir()
        (data / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
        (data / "instructions.md").write_text(instructions)
        os.symlink(data.name, self.folder / "..new")
        os.rename(self.folder / "..new", self.folder / "..data")
        for name in ("config.json", "instructions.md"):
            if not (self.folder / name).is_symlink():
                os.symlink(f"..data/{name}", self.folder / name)

    def environment(self):
        names = {"AGENT_CONFIG_FILE": "config.json", "AGENT_INSTRUCTIONS_FILE": "instructions.md"}
        return {key: str(self.folder / name) for key, name in names.items()}


class Hot(unittest.TestCase):
    def test_another_configuration_is_taken_without_a_restart(self):
        rules = [
            {"prompt": "slow", "steps": [{"delay": 2, "text": "{prompt} done"}]},
            {"prompt": "use echo", "steps": [{"tool": "echo", "arguments": {"text": "x"}}, {"text": "{0}"}]},
        ]
        model = ScriptedModel(rules)
        self.addCleanup(model.stop)
        tools = ToolServer()
        self.addCleanup(tools.stop)
        mounted = ConfigMap(self.enterContext(tempfile.TemporaryDirectory()))
        config = {"reload": "Hot", "hash": "00000001", "commit": "a" * 40, "modelUrl": model.url}
        mounted.write(config, "Old instructions.")
        agent = Agent("critic", mounted.environment())
        self.addCleanup(agent.stop)
        running = agent.send("slow question", configuration={"returnImmediately": True})
        wait_until(lambda: model.asked("slow question"), "the model is asked")

        config |= {"hash": "00000002", "commit": "b" * 40, "mcpServers": [{"name": "t", "url": tools.url}]}
        mounted.write(config, "New instructions.")
        loaded = lambda: agent.state()[1].get("hash") == "00000002" and agent.state()[0] == 200
        wait_until(loaded, "the configuration is loaded")
        self.assertEqual(agent.state()[1]["commit"], "b" * 40)
        self.assertEqual(agent.said("use echo"), "tool says x")
        self.assertIn("New instructions.", json.dumps(model.asked("use echo")[0]["body"]["messages"][0]))
        card = ask(agent.url, "/.well-known/agent-card.json")[1]
        self.assertEqual(card["capabilities"]["extensions"][0]["params"]["hash"], "00000002")

        get = lambda: agent.rpc("GetTask", {"id": running["id"]})["result"]
        done = wait_until(lambda: get()["status"]["state"] == "TASK_STATE_COMPLETED" and get(), "the old question ends")
        self.assertEqual(text_of(done), "slow question done")
        self.assertIn("Old instructions.", json.dumps(model.asked("slow question")[0]["body"]["messages"][0]))

        mounted.write('{"reload": "Hot", "memory": {"contextLimit": 0}}', "Broken.")
        problem = wait_until(lambda: agent.state()[1].get("configurationProblem"), "the problem is told")
        self.assertIn("memory.contextLimit", problem)
        self.assertEqual((agent.state()[0], agent.state()[1]["hash"]), (200, "00000002"))
        self.assertIn("the new configuration is bad", agent.output())
        self.assertEqual(agent.said("use echo"), "tool says x")

        mounted.write(config | {"hash": "00000003", "mcpServers": []}, "Third.")
        wait_until(lambda: agent.state()[1].get("hash") == "00000003", "the next one is loaded")
        self.assertNotIn("configurationProblem", agent.state()[1])

    def test_tool_servers_that_change_do_not_make_it_unready(self):
        rule = {"prompt": "use echo", "steps": [{"tool": "echo", "arguments": {"text": "x"}}, {"text": "{0}"}]}
        model = ScriptedModel([rule])
        self.addCleanup(model.stop)
        tools = ToolServer()
        self.addCleanup(tools.stop)
        mounted = ConfigMap(self.enterContext(tempfile.TemporaryDirectory()))
        first = {"name": "t", "url": tools.url}
        config = {"reload": "Hot", "hash": "00000001", "modelUrl": model.url, "mcpServers": [first]}
        mounted.write(config, "Instructions.")
        agent = Agent("critic", mounted.environment())
        self.addCleanup(agent.stop)
        states = []

        def loaded(number):
            states.append(agent.state())
            return states[-1][1]["hash"] == number

        tools.stop()
        # What is only allowed otherwise needs no server.
        mounted.write(config | {"hash": "00000002", "mcpServers": [first | {"tools": ["echo", "note"]}]}, "Second.")
        wait_until(lambda: loaded("00000002"), "the second configuration is loaded", 15)
        agent.said("hello second")
        offered = [one["function"]["name"] for one in model.asked("hello second")[0]["body"]["tools"]]
        self.assertEqual(sorted(offered), ["echo", "note"])
        # A server that is new is waited for, and the old configuration answers meanwhile.
        port = free_port()
        other = {"name": "other", "url": f"http://127.0.0.1:{port}/mcp"}
        mounted.write(config | {"hash": "00000003", "mcpServers": [other]}, "Third.")
        until = time.monotonic() + 4
        while time.monotonic() < until:
            self.assertFalse(loaded("00000003"))
            time.sleep(0.1)
        later = ToolServer(port=port)
        self.addCleanup(later.stop)
        wait_until(lambda: loaded("00000003"), "the third configuration is loaded", 25)
        self.assertEqual(agent.said("use echo"), "tool says x")
        self.assertEqual({status for status, _ in states}, {200})

    def test_a_new_tool_server_is_not_waited_for_for_ever(self):
        async def told():
            folder = self.enterContext(tempfile.TemporaryDirectory())
            mounted = ConfigMap(folder)
            config = {"reload": "Hot", "hash": "00000001", "model": "m", "modelUrl": "http://127.0.0.1:1"}
            mounted.write(config, "Instructions.")
            service = Service(mounted.environment())
            await service.start()
            self.assertIsNone(service.state())
            self.assertNotIn("missing", service.ready_body())
            dead = {"name": "dead", "url": f"http://127.0.0.1:{free_port()}/mcp"}
            mounted.write(config | {"hash": "00000002", "mcpServers": [dead]}, "Instructions.")
            async with asyncio.timeout(30):
                while service.ready_body()["hash"] != "00000002":
                    await asyncio.sleep(0.05)
            body = service.ready_body()
            await service.close()
            return body

        with mock.patch("convoke_agent.service.NEW_SERVERS_SECONDS", 0.5):
            body = asyncio.run(told())
        self.assertEqual((body["reason"], body["missing"]), (None, ["dead"]))

    def test_connections_of_a_configuration_that_is_not_taken_are_closed(self):
        async def closed():
            mounted = ConfigMap(self.enterContext(tempfile.TemporaryDirectory()))
            server = {"name": "t", "url": f"http://127.0.0.1:{free_port()}/mcp"}
            config = {"model": "m", "modelUrl": "http://127.0.0.1:1", "mcpServers": [server]}
            mounted.write(config, "Instructions.")
            service = Service(mounted.environment())
            bad = mock.patch("convoke_agent.service.loop.Snapshot", side_effect=BadSettings(["it cannot be taken"]))
            with bad, mock.patch.object(Connection, "close", autospec=True, side_effect=Connection.close) as close:
                await service.start()
                names = [call.args[0].name for call in close.call_args_list]
            await service.close()
            return service.problem, names

        problem, names = asyncio.run(closed())
        self.assertIn("it cannot be taken", problem)
        self.assertEqual(names, ["t"])

    def test_a_bad_configuration_can_be_mended(self):
        model = ScriptedModel()
        self.addCleanup(model.stop)
        mounted = ConfigMap(self.enterContext(tempfile.TemporaryDirectory()))
        mounted.write("{", "Instructions.")
        agent = Agent("critic", mounted.environment(), wait=False)
        self.addCleanup(agent.stop)
        wait_until(lambda: "not JSON" in str(agent.state()[1]), "the problem is told")
        mounted.write({"reload": "Hot", "modelUrl": model.url}, "Instructions.")
        agent.wait_ready()
        self.assertEqual(agent.said("hello"), "echo: hello")


    def test_a_configuration_that_is_not_there_yet_is_waited_for(self):
        model = ScriptedModel()
        self.addCleanup(model.stop)
        mounted = ConfigMap(self.enterContext(tempfile.TemporaryDirectory()))
        # Its variables alone would be enough.
        agent = Agent("critic", mounted.environment() | {"MODEL_API_URL": model.url}, wait=False)
        self.addCleanup(agent.stop)
        wait_until(lambda: "cannot be read" in str(agent.state()[1]), "the problem is told")
        self.assertEqual(agent.state()[0], 503)
        mounted.write({"modelUrl": model.url}, "Instructions.")
        agent.wait_ready()


class TheEnd(unittest.TestCase):
    def setUp(self):
        rules = [
            {"prompt": "slow", "steps": [{"delay": 3, "text": "finished"}]},
            {"prompt": "hang", "steps": [{"hang": True}]},
        ]
        self.model = ScriptedModel(rules)
        self.addCleanup(self.model.stop)
        self.agent = Agent("critic", {"MODEL_API_URL": self.model.url})
        self.addCleanup(self.agent.stop)

    def test_sigterm_lets_what_runs_end(self):
        answers = []
        asked = [
            threading.Thread(target=lambda: answers.append(self.agent.said("slow chat"))),
            threading.Thread(target=lambda: answers.append(text_of(self.agent.send("slow task")))),
        ]
        for one in asked:
            one.start()
        wait_until(lambda: len(self.model.asked("slow")) == 2, "the model is asked")
        kept = http.client.HTTPConnection("127.0.0.1", self.agent.port, timeout=60)
        self.addCleanup(kept.close)
        kept.request("GET", "/health")
        kept.getresponse().read()
        self.assertIsNotNone(kept.sock)
        self.agent.process.send_signal(signal.SIGTERM)
        # Meanwhile nothing new is taken, and who asks is told why.
        wait_until(lambda: self.agent.state()[0] == 503, "it is not ready")
        self.assertEqual(self.agent.state()[1]["reason"], "the agent stops")
        # A connection that is kept ends, so that the next question comes to another pod.
        for path in ("/health", "/nothing"):
            kept.request("GET", path)
            reply = kept.getresponse()
            reply.read()
            self.assertEqual((reply.headers["Connection"], kept.sock), ("close", None))
        status, body = self.agent.chat("another")
        self.assertEqual((status, body["error"]["code"]), (503, "stopping"))
        self.assertEqual(self.agent.send("another")["error"]["data"][0]["metadata"]["reason"], "stopping")
        self.assertEqual(ask(self.agent.url, "/health")[0], 200)
        for one in asked:
            one.join()
        self.assertEqual(answers, ["finished"] * 2)
        self.assertEqual(self.agent.process.wait(30), 0)
        with self.assertRaises(OSError):
            ask(self.agent.url, "/health")

    def test_what_does_not_end_is_cancelled_and_its_askers_are_told(self):
        port = free_port()
        # As it is run, with less patience.
        source = "import sys, convoke_agent.__main__ as it; it.STOP_SECONDS = 1; sys.exit(it.main())"
        environment = {"MODEL_API_URL": self.model.url, "MODEL_NAME": "scripted", "PORT": str(port)}
        program = Program(["-c", source], environment)
        self.addCleanup(program.stop)
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: opens(port) and ask(url, "/ready")[0] == 200, "it is ready")
        message = {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "hang task"}]}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        chat = {"messages": [{"role": "user", "content": "hang chat"}]}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            task = pool.submit(ask, url, "/", body)
            answer = pool.submit(ask, url, "/v1/chat/completions", chat)
            wait_until(lambda: len(self.model.asked("hang")) == 2, "the model is asked")
            program.process.send_signal(signal.SIGTERM)
            self.assertEqual(task.result()[1]["result"]["task"]["status"]["state"], "TASK_STATE_CANCELED")
            status, told = answer.result()
        self.assertEqual((status, told["error"]["code"]), (503, "stopping"))
        self.assertEqual(program.process.wait(10), 0)

    def test_sigterm_ends_an_agent_that_does_nothing_at_once(self):
        began = time.monotonic()
        self.agent.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.agent.process.wait(30), 0)
        self.assertLess(time.monotonic() - began, 10)


class Collector:
    """Takes traces and keeps what their bytes hold."""

    def __init__(self):
        outer = self
        self.bodies = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                outer.bodies.append((self.path, body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Silence(unittest.TestCase):
    """Canaries in the prompt, the answer, arguments, results, headers and the key are neither logged nor traced."""

    CANARIES = ("prompt-canary", "answer-canary", "argument-canary", "result-canary", "key-canary", "session-canary")

    def test_canaries(self):
        tools = ToolServer(TELLING)
        self.addCleanup(tools.stop)
        call = lambda name: {"tool": name, "arguments": {"text": "argument-canary"}}
        calls = ["leak", "breaks", "refuses"]
        rules = [
            {"prompt": "works", "steps": [{"calls": [call(name) for name in calls]}, {"text": "answer-canary"}]},
            {"prompt": "fails", "steps": [{"status": 401}]},
            {"prompt": "garbage", "steps": [{"garbage": True}]},
        ]
        model = ScriptedModel(rules)
        self.addCleanup(model.stop)
        collector = Collector()
        self.addCleanup(collector.stop)
        environment = {
            "MODEL_API_URL": model.url,
            "OPENAI_API_KEY": "key-canary",
            "OTEL_SERVICE_NAME": "critic-service",
        }
        environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "MCP_SERVERS": "t", "MCP_SERVER_T_URL": tools.url}
        agent = Agent("critic", environment)
        self.addCleanup(agent.stop)
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        headers = {"X-Session-Id": "session-canary", "traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
        for kind in ("works", "fails", "garbage"):
            agent.chat(f"{kind} prompt-canary", headers)
            agent.chat(f"{kind} prompt-canary", headers, stream=True)
            agent.send(f"{kind} prompt-canary", message={"contextId": "session-canary"})
            agent.rpc("message/send", {"message": {"role": "user", "parts": "prompt-canary", "messageId": 7}})
        agent.send("prompt-canary", message={"taskId": "session-canary"})
        ask_raw(agent.url, "/v1/chat/completions", b'{"prompt-canary')
        ask_raw(agent.url, "/prompt-canary")
        agent.process.send_signal(signal.SIGTERM)
        agent.process.wait(60)
        agent.stop()
        traced = b"".join(body for _, body in collector.bodies)
        for canary in self.CANARIES:
            self.assertNotIn(canary, agent.output())
            self.assertFalse(canary.encode() in traced, canary)
        self.assertNotIn("Traceback", agent.output())
        lines = [json.loads(line) for line in agent.lines]
        requests = [line for line in lines if line["message"] == "request"]
        self.assertEqual(len(requests), 9)
        self.assertEqual(requests[0]["tools"], calls)
        self.assertEqual(
            {line["status"] for line in requests if line["method"] == "SendMessage"}, {"completed", "failed"}
        )
        self.assertEqual({path for path, _ in collector.bodies}, {"/v1/traces"})
        self.assertTrue(bytes.fromhex(trace) in traced)
        for word in (b"critic-service", b"gen_ai.request.model", b"scripted"):
            self.assertTrue(word in traced, word)


if __name__ == "__main__":
    unittest.main()
