"""Tools of MCP servers within the loop."""

import asyncio
import json
import os
import subprocess
import tempfile
import threading
import types
import unittest
from unittest import mock
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from convoke_agent import logs, loop, names, schemas, tool_servers
from convoke_agent.settings import McpServer, Settings
from convoke_agent.tool_servers import Connection, ToolError, ToolServer as Configured
from tests.support import Agent, ScriptedModel, ToolServer, ask, free_port, opens, text_of, wait_until


OTHER = """
def same(x: str) -> str:
    return 'other ' + x
def hidden() -> str:
    return ''
def careful(text: str) -> str:
    return text
"""


def use(name, arguments=None, **more):
    step = {"tool": name, "arguments": arguments or {}} | more
    return {"prompt": f"^use {name}( |$)", "steps": [step, {"text": "results: {results}"}]}


class Tools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = ScriptedModel(
            [
                use("echo", {"text": "{prompt}"}),
                use("fails", {"text": "badly"}),
                use("hangs"),
                use("long", {"characters": 200_000}),
                use("hidden"),
                use("careful", {"text": "{prompt}"}),
                use("note", raw="this is no JSON"),
                {
                    "prompt": "use two",
                    "steps": [
                        {
                            "calls": [
                                {"tool": "echo", "arguments": {"text": "a"}},
                                {"tool": "count_words", "arguments": {"text": "a b c"}},
                            ]
                        },
                        {"text": "{0} and {1}"},
                    ],
                },
            ]
        )
        cls.addClassCleanup(cls.model.stop)
        cls.server = ToolServer()
        cls.addClassCleanup(cls.server.stop)
        cls.other = ToolServer(OTHER)
        cls.addClassCleanup(cls.other.stop)
        cls.third = ToolServer("def same(x: str) -> str:\n    return 'third ' + x\n")
        cls.addClassCleanup(cls.third.stop)
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        servers = [
            {"name": "text-tools", "url": cls.server.url},
            {"name": "other", "url": cls.other.url, "tools": ["same", "careful"], "requireApproval": ["careful"]},
            {"name": "third", "url": cls.third.url, "headers": [{"name": "Authorization", "env": "THIRD"}]},
        ]
        with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
            json.dump({"mcpServers": servers, "agenticLoop": {"maxSeconds": 20}}, file)
        environment = {"MODEL_API_URL": cls.model.url, "AGENT_TOOL_TIMEOUT_SECONDS": "1", "THIRD": "Bearer t"}
        cls.agent = Agent("critic", environment | {"AGENT_CONFIG_FILE": f"{folder}/config.json"})
        cls.addClassCleanup(cls.agent.stop)

    def test_a_result_reaches_the_model(self):
        self.assertEqual(self.agent.said("use echo now"), "results: tool says use echo now")

    def test_two_at_once(self):
        self.assertEqual(self.agent.said("use two"), "tool says a and 3")

    def test_names_that_clash_get_their_servers_name(self):
        self.agent.said("hello names")
        offered = [one["function"]["name"] for one in self.model.asked("hello names")[0]["body"]["tools"]]
        self.assertEqual(
            sorted(offered),
            ["careful", "count_words", "echo", "fails", "hangs", "long", "note", "other_same", "third_same"],
        )

    def test_a_tool_that_is_not_allowed_is_not_there(self):
        said = self.agent.said("use hidden")
        self.assertIn("hidden", said)
        self.assertNotIn("results: \n", said)
        self.assertIn("Unknown tool", said)

    def test_errors_go_to_the_model(self):
        self.assertIn("Error executing tool fails", self.agent.said("use fails"))
        self.assertIn("did not answer within 1 s", self.agent.said("use hangs"))
        self.assertIn("results: ", self.agent.said("use note"))

    def test_a_long_result_is_cut(self):
        said = self.agent.said("use long")
        self.assertIn("[cut: 134464 of 200000 characters are left out]", said)
        self.assertLess(len(said), 66_000)

    def test_arguments_that_are_too_large_are_not_asked_for(self):
        task = self.agent.send("use careful " + "x" * 300_000)
        self.assertIn("the arguments are larger than 256 KiB", text_of(task))

    def test_chat_cannot_ask_for_approval(self):
        self.assertIn("needs approval, which this interface cannot ask for", self.agent.said("use careful"))

    def test_the_card_counts_them(self):
        card = ask(self.agent.url, "/.well-known/agent-card.json")[1]
        self.assertEqual(
            card["capabilities"]["extensions"][0]["params"]["tools"], {"text-tools": 6, "other": 2, "third": 1}
        )


class Names(unittest.TestCase):
    def snapshot(self, servers, peers=()):
        listed = [
            types.SimpleNamespace(name=name, tools={tool: types.SimpleNamespace(name=tool) for tool in tools})
            for name, tools in servers.items()
        ]
        settings = Settings(model="m", model_url="http://m")
        others = [types.SimpleNamespace(name=name) for name in peers]
        return loop.Snapshot(settings, {}, listed, others, 60)

    def named(self, *arguments):
        return {name: (server.name, tool.name) for name, (server, tool) in self.snapshot(*arguments).tools().items()}

    def test_no_tool_takes_the_place_of_another(self):
        found = self.named({"a": ["search"], "b": ["search"], "c": ["a_search"]})
        self.assertEqual((len(found), found["a_search"], found["b_search"]), (3, ("c", "a_search"), ("b", "search")))
        (other,) = set(found) - {"a_search", "b_search"}
        self.assertRegex(other, "^a_search_[0-9a-f]{8}$")
        self.assertEqual(found[other], ("a", "search"))
        found = self.named({"a": ["b_c", "c"], "a_b": ["c", "b_c"]})
        self.assertEqual(sorted(found.values()), [("a", "b_c"), ("a", "c"), ("a_b", "b_c"), ("a_b", "c")])

    def test_no_tool_hides_behind_a_peer(self):
        found = self.named({"a": ["delegate_to_x", "other"]}, ["x", "y"])
        self.assertEqual(found, {"a_delegate_to_x": ("a", "delegate_to_x"), "other": ("a", "other")})
        self.assertEqual(list(self.snapshot({}, ["x.y", "x_y"]).delegates()).count("delegate_to_x_y"), 0)
        self.assertEqual(len(self.snapshot({}, ["x.y", "x_y"]).delegates()), 2)

    def test_names_are_bounded_and_stay(self):
        wanted = [("x" * 70, "s_" + "x" * 70), ("x" * 80, "s_" + "x" * 80), ("y", "s_y"), ("y", "t_y")]
        found = names.assigned(wanted)
        self.assertEqual((len(set(found)), max(map(len, found)), found[2:]), (4, 64, ["s_y", "t_y"]))
        self.assertEqual(names.assigned(wanted[::-1]), found[::-1])


class Sessions:
    """A tool server of the protocol's older versions, which knows its sessions by name. `calls` counts what ran."""

    def __init__(self):
        outer = self
        self.calls = 0
        self.sessions = set()
        self.says = None
        # Set while it answers; and the tools that it lists.
        self.answers = threading.Event()
        self.answers.set()
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.tools = [{"name": "act", "inputSchema": {"type": "object"}}]

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                method, session = body.get("method"), self.headers.get("Mcp-Session-Id")
                if method == "initialize":
                    outer.sessions.add(name := f"s{len(outer.sessions)}-{id(body)}")
                    info = {"serverInfo": {"name": "x", "version": "1"}, "capabilities": {"tools": {}}}
                    self.say(200, body, {"result": info | {"protocolVersion": "2025-06-18"}}, name)
                elif session not in outer.sessions:
                    error = {"code": -32600, "message": "Session not found"}
                    self.say(404 if session else 400, body, {"error": error})
                elif "id" not in body:
                    self.say(202, None, None)
                elif method == "tools/list":
                    outer.answers.wait(60)
                    self.say(200, body, {"result": {"tools": outer.tools}})
                elif method == "tools/call":
                    outer.calls += 1
                    outer.goes_on.wait(60)
                    done = {"result": {"content": [{"type": "text", "text": "acted"}]}}
                    self.say(200, body, outer.says or done)
                else:
                    self.say(200, body, {"error": {"code": -32601, "message": "no such method"}})

            def do_GET(self):
                self.say(405, None, None)

            def do_DELETE(self):
                outer.answers.wait(60)
                self.say(200, None, None)

            def say(self, status, body, value, session=None):
                data = b"" if value is None else json.dumps({"jsonrpc": "2.0", "id": body.get("id")} | value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                if session is not None:
                    self.send_header("Mcp-Session-Id", session)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/mcp"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class OneServer(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.there = Sessions()
        self.addCleanup(self.there.stop)
        settings = McpServer(name="t", url=self.there.url)
        self.connection = connection = Connection(settings, {})
        self.addAsyncCleanup(connection.close)
        self.tools = Configured(settings, connection)
        async with asyncio.timeout(30):
            await connection.listed.wait()
        self.assertEqual(list(self.tools.tools), ["act"])

    async def until(self, check):
        async with asyncio.timeout(60):
            while not check():
                await asyncio.sleep(0.01)


class Again(OneServer):
    """When a call is sent a second time."""

    async def test_a_call_whose_session_is_gone_is_sent_again(self):
        self.assertEqual(await self.tools.call("act", {}, 10), "acted")
        self.there.sessions.clear()
        self.assertEqual(await self.tools.call("act", {}, 10), "acted")
        self.assertEqual(self.there.calls, 2)

    async def test_what_a_server_says_of_sessions_does_not_send_it_again(self):
        self.there.says = {"error": {"code": -32600, "message": "Session not found"}}
        with self.assertRaisesRegex(ToolError, "Session not found"):
            await self.tools.call("act", {}, 10)
        self.assertEqual(self.there.calls, 1)

    async def test_a_call_that_was_approved_is_sent_once(self):
        self.there.sessions.clear()
        with self.assertRaisesRegex(ToolError, "the call did not run"):
            await self.tools.call("act", {}, 10, once=True)
        self.assertEqual(self.there.calls, 0)


class Stalled(OneServer):
    """A server that does not answer for a while."""

    def setUp(self):
        self.enterContext(mock.patch.object(tool_servers, "CONNECT_SECONDS", 0.5))

    def stall(self, event):
        event.clear()
        self.addCleanup(event.set)
        self.connection._look.set()

    async def test_it_is_connected_again_once_it_answers(self):
        self.stall(self.there.answers)
        await self.until(lambda: self.connection.problem == "TimeoutError")
        with self.assertRaisesRegex(ToolError, "cannot be reached"):
            await self.tools.call("act", {}, 10)
        # Its answer to the end of a session hangs as well.
        self.there.answers.set()
        await self.until(lambda: self.connection.problem is None)
        self.assertEqual(await self.tools.call("act", {}, 10), "acted")

    async def test_what_it_works_on_is_not_lost_because_it_lists_nothing(self):
        self.stall(self.there.goes_on)
        call = asyncio.create_task(self.tools.call("act", {}, 30))
        await self.until(lambda: self.there.calls == 1)
        with self.assertLogs(logs.LOGGER, "WARNING") as told:
            self.stall(self.there.answers)
            await self.until(lambda: told.output)
        self.assertIn("does not list its tools while it works", told.output[0])
        self.there.goes_on.set()
        self.assertEqual(await call, "acted")
        self.assertEqual(self.there.calls, 1)

    async def test_a_call_without_an_answer_may_have_run(self):
        self.stall(self.there.goes_on)
        with self.assertRaisesRegex(ToolError, "did not answer within 1 s; it may have run"):
            await self.tools.call("act", {}, 1)
        call = asyncio.create_task(self.tools.call("act", {}, 30))
        await self.until(lambda: self.there.calls == 2)
        self.there.server.shutdown()
        await self.connection.close()
        with self.assertRaisesRegex(ToolError, "the tool may have run"):
            await call

    async def test_a_tool_with_a_bad_schema_is_left_out_alone(self):
        bad = {"type": "object", "properties": {"x": {"type": "object", "properties": []}}}
        with self.assertLogs(logs.LOGGER, "WARNING") as told:
            self.there.tools = [*self.there.tools, {"name": "odd", "inputSchema": bad}]
            self.connection._look.set()
            await self.until(lambda: told.output)
        self.assertIn("tools are left out", told.output[0])
        self.assertEqual(list(self.tools.tools), ["act"])


class Schemas(unittest.TestCase):
    def test_what_holds_schemas_has_its_form(self):
        deep = {}
        for _ in range(100):
            deep = {"items": deep}
        for bad in (
            [],
            True,
            {"type": "array"},
            {"properties": []},
            {"properties": {"a": []}},
            {"properties": {"a": {"properties": None}}},
            {"$defs": []},
            {"anyOf": {}},
            {"allOf": [1]},
            {"required": "a"},
            {"required": [1]},
            {"items": 5},
            {"additionalProperties": []},
            {"$ref": 1},
            {"properties": {"a": deep}},
        ):
            self.assertFalse(schemas.is_sound(bad), bad)
        for good in (
            {},
            {"type": "object", "properties": {"a": {"type": "string"}, "b": True}, "required": ["a"]},
            {"$defs": {"x": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/x"}]}}},
            {"properties": {"a": {"items": [{"type": "string"}], "additionalProperties": False}}},
        ):
            self.assertTrue(schemas.is_sound(good), good)


class Lost(unittest.TestCase):
    def test_ready_waits_for_the_tools_but_not_for_ever(self):
        model = ScriptedModel([use("echo", {"text": "{prompt}"})])
        self.addCleanup(model.stop)
        port = free_port()
        servers = {"MCP_SERVERS": "t", "MCP_SERVER_T_URL": f"http://127.0.0.1:{port}/mcp"}
        agent = Agent("critic", {"MODEL_API_URL": model.url} | servers, wait=False)
        self.addCleanup(agent.stop)
        wait_until(lambda: "tools of the server t" in str(agent.state()[1]), "the agent tells what it waits for")
        self.assertEqual(agent.state()[0], 503)
        server = ToolServer(port=port)
        agent.wait_ready()
        self.assertEqual(agent.said("use echo 1"), "results: tool says use echo 1")
        server.stop()
        said = agent.said("use echo 2")
        self.assertRegex(said, "results: .*(failed|cannot be reached)")
        self.assertEqual(agent.state()[0], 200)
        server = ToolServer(port=port)
        self.addCleanup(server.stop)
        wait_until(lambda: "tool says" in agent.said("use echo 3"), "the tools are back", 15)
        self.assertEqual(model.model.abandoned, 0)


OLD = """
import os
from mcp.server.fastmcp import FastMCP
server = FastMCP("old", host="127.0.0.1", port=int(os.environ["PORT"]), log_level="ERROR")
@server.tool()
def echo(text: str) -> str:
    return "old tool says " + text
server.run(transport="streamable-http")
"""


@unittest.skipUnless(os.environ.get("OLD_MCP_PYTHON"), "OLD_MCP_PYTHON names no Python with a version of mcp below 2")
class Older(unittest.TestCase):
    """A server of the protocol's versions with sessions."""

    def start(self, port):
        environment = {"PORT": str(port), "PATH": os.environ["PATH"]}
        process = subprocess.Popen([os.environ["OLD_MCP_PYTHON"], "-c", OLD], env=environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_its_tools_work_after_a_restart_too(self):
        model = ScriptedModel([use("echo", {"text": "{prompt}"})])
        self.addCleanup(model.stop)
        port = free_port()
        server = self.start(port)
        url = f"http://127.0.0.1:{port}/mcp"
        agent = Agent("critic", {"MODEL_API_URL": model.url, "MCP_SERVERS": "t", "MCP_SERVER_T_URL": url})
        self.addCleanup(agent.stop)
        self.assertEqual(agent.said("use echo 1"), "results: old tool says use echo 1")
        server.kill()
        server.wait()
        self.start(port)
        wait_until(lambda: opens(port), "the server serves again")
        self.assertEqual(agent.said("use echo 2"), "results: old tool says use echo 2")


if __name__ == "__main__":
    unittest.main()
