"""What the settings are read from, and how bad ones are told."""

import json
import unittest

from convoke_agent.service import _number
from convoke_agent.settings import BadSettings, read_files, settings_of, values_of

LEAST = {"MODEL_API_URL": "http://model:8000", "MODEL_NAME": "m"}


def read(file=None, environment=None, instructions=None):
    content = None if file is None else file if isinstance(file, bytes) else json.dumps(file).encode()
    return settings_of((content, instructions), LEAST if environment is None else environment)


class FromTheEnvironment(unittest.TestCase):
    def test_all_of_it(self):
        settings = read(
            environment=LEAST
            | {
                "AGENT_NAME": "critic",
                "AGENT_DESCRIPTION": "Reviews.",
                "AGENT_INSTRUCTIONS": "Be brief.",
                "AGENT_CONFIG_HASH": "0a1b2c3d",
                "AGENTIC_LOOP_MAX_STEPS": "7",
                "AGENTIC_LOOP_ENABLE_TOOLS": "false",
                "MEMORY_TYPE": "redis",
                "MEMORY_REDIS_URL": "redis://r",
                "MEMORY_CONTEXT_LIMIT": "3",
                "MCP_SERVERS": "text-tools, other",
                "MCP_SERVER_TEXT_TOOLS_URL": "http://t:8000/mcp",
                "MCP_SERVER_other_URL": "http://o:8000/mcp",
                "PEER_AGENTS": "writer-one",
                "PEER_AGENT_WRITER_ONE_CARD_URL": "http://w:8000/.well-known/agent-card.json",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4318",
            }
        )
        self.assertEqual(
            (settings.name, settings.description, settings.instructions), ("critic", "Reviews.", "Be brief.")
        )
        self.assertEqual((settings.hash, settings.commit), ("0a1b2c3d", None))
        self.assertEqual((settings.agentic_loop.max_steps, settings.agentic_loop.enable_tools), (7, False))
        self.assertEqual((settings.memory.type, settings.memory.context_limit), ("Redis", 3))
        servers = {one.name: one.url for one in settings.mcp_servers}
        self.assertEqual(servers, {"text-tools": "http://t:8000/mcp", "other": "http://o:8000/mcp"})
        self.assertEqual([(one.name, one.url) for one in settings.peers], [("writer-one", "http://w:8000")])
        self.assertTrue(settings.telemetry.enabled)


class FromTheFile(unittest.TestCase):
    def test_the_file_wins_key_by_key_and_null_says_nothing(self):
        environment = LEAST | {"AGENTIC_LOOP_MAX_STEPS": "7", "MEMORY_CONTEXT_LIMIT": "3", "AGENT_INSTRUCTIONS": "Old."}
        file = {"name": "critic", "model": None, "agenticLoop": {"maxSteps": 2}, "memory": {"maxSessions": 9}, "new": 1}
        settings = read(file, environment, b"Be kind.\n")
        self.assertEqual((settings.name, settings.model, settings.instructions), ("critic", "m", "Be kind.\n"))
        self.assertEqual(settings.agentic_loop.max_steps, 2)
        self.assertEqual((settings.memory.context_limit, settings.memory.max_sessions), (3, 9))

    def test_the_hash_of_a_file_that_says_its_own_wins(self):
        variables = LEAST | {"AGENT_CONFIG_HASH": "00000001"}
        self.assertEqual(read({"name": "critic"}, variables).hash, "00000001")
        self.assertEqual(read({"hash": "00000002"}, variables).hash, "00000002")

    def test_all_keys_are_taken(self):
        file = {
            "modelAPI": "shared-model",
            "modelParameters": {"topP": 0.5, "stopSequences": ["x"], "timeoutSeconds": 5, "extraBody": {"a": 1}},
            "modelHeaders": [{"name": "X-Org", "env": "ORG"}],
            "mcpServers": [{"name": "t", "url": "http://t/mcp", "tools": ["a"], "requireApproval": ["b"]}],
            "a2a": {"skills": [{"id": "x", "name": "X"}], "iconUrl": "https://i"},
        }
        settings = read(file, LEAST | {"ORG": "secret"})
        self.assertEqual((settings.model_api, settings.model_parameters.top_p), ("shared-model", 0.5))
        self.assertEqual(settings.mcp_servers[0].require_approval, ["b"])
        self.assertEqual((settings.a2a.skills[0].name, settings.a2a.icon_url), ("X", "https://i"))


    def test_a_header_that_is_optional_is_left_out_without_its_variable(self):
        headers = [{"name": "X-Org", "env": "ORG"}, {"name": "X-Team", "env": "TEAM", "optional": True}]
        file = {"modelHeaders": headers, "mcpServers": [{"name": "t", "url": "http://t/mcp", "headers": headers}]}
        for more, found in (({}, {"X-Org": "o"}), ({"TEAM": "t"}, {"X-Org": "o", "X-Team": "t"})):
            environment = LEAST | {"ORG": "o"} | more
            settings = read(file, environment)
            for one in (settings.model_headers, settings.mcp_servers[0].headers):
                self.assertEqual(values_of(one, environment), found)


class Bounds(unittest.TestCase):
    def test_what_the_definitions_allow_is_taken(self):
        name = "X" * 128
        settings = read(
            {
                "modelHeaders": [{"name": name, "env": "KEY"}],
                "agenticLoop": {"maxSteps": 1, "maxSeconds": 3600, "maxTokens": 10_000_000},
                "memory": {"contextLimit": 1, "maxSessions": 1, "maxSessionEvents": 1},
                "mcpServers": [{"name": "t", "url": "https://t?key=x", "headers": [{"name": name, "env": "KEY"}]}],
            },
            LEAST | {"KEY": "k"},
        )
        self.assertEqual((settings.model_headers[0].name, settings.mcp_servers[0].headers[0].name), (name, name))
        self.assertEqual(settings.memory.max_session_events, 1)


class Bad(unittest.TestCase):
    def problems(self, *arguments, **more):
        with self.assertRaises(BadSettings) as raised:
            read(*arguments, **more)
        return "; ".join(raised.exception.problems)

    def test_each_problem_names_its_key(self):
        for file, environment, what in (
            ({}, {"MODEL_NAME": "m"}, "MODEL_API_URL: it is missing"),
            ({}, {"MODEL_API_URL": "http://m"}, "MODEL_NAME: it is missing"),
            ({"memory": {"contextLimit": 0}}, LEAST, "config.json: memory.contextLimit: "),
            ({}, LEAST | {"AGENTIC_LOOP_MAX_STEPS": "many"}, "AGENTIC_LOOP_MAX_STEPS: "),
            ({"mcpServers": [{"name": "t", "url": "ftp://t"}]}, LEAST, "config.json: mcpServers.0.url: "),
            ({"modelUrl": "http://m/v1?version=2"}, LEAST, "config.json: modelUrl: "),
            ({"memory": {"maxSessionEvents": 0}}, LEAST, "config.json: memory.maxSessionEvents: "),
            ({"reload": "Sometimes"}, LEAST, "config.json: reload: "),
            ({}, LEAST | {"MCP_SERVERS": "a-b"}, "MCP_SERVER_A_B_URL: it is missing"),
            ({}, LEAST | {"MEMORY_TYPE": "redis"}, "MEMORY_REDIS_URL: it is not set"),
            ({"modelHeaders": [{"name": "X", "env": "KEY_0"}]}, LEAST, "KEY_0: it is not set"),
            (b"{", LEAST, "AGENT_CONFIG_FILE: the file is not JSON"),
            (b"[]", LEAST, "AGENT_CONFIG_FILE: the file is not a JSON object"),
            (b"\xff", LEAST, "AGENT_CONFIG_FILE: the file is not UTF-8"),
        ):
            with self.subTest(what):
                self.assertIn(what, self.problems(file, environment))

    def test_a_secret_with_a_line_break_is_told_and_not_quoted(self):
        header = [{"name": "X-Org", "env": "ORG", "optional": True}]
        advice = "make the Secret without one, e.g. with printf or --from-literal"
        for file, variable, what in (
            ({}, "OPENAI_API_KEY", "OPENAI_API_KEY: it contains a line break: "),
            ({"modelHeaders": header}, "ORG", "ORG: it contains a line break, and modelHeaders takes the header X-Org"),
            ({"mcpServers": [{"name": "t", "url": "http://t", "headers": header}]}, "ORG", "mcpServers of t takes the"),
        ):
            for value in ("canary\n", "canary\r\n", "first\ncanary", "\n"):
                with self.subTest(what, value=value):
                    told = self.problems(file, LEAST | {variable: value})
                    self.assertIn(what, told)
                    self.assertIn(advice, told)
                    self.assertNotIn("canary", told)

    def test_an_address_with_a_password_is_refused_and_not_quoted(self):
        told = self.problems({"modelUrl": "http://user:secret@model"})
        self.assertIn("modelUrl", told)
        self.assertNotIn("secret", told)


class Files(unittest.TestCase):
    def test_a_file_that_is_named_and_missing_is_no_configuration_from_variables(self):
        self.assertEqual(read_files({"AGENT_CONFIG_FILE": ""}), (None, None))
        for variable in ("AGENT_CONFIG_FILE", "AGENT_INSTRUCTIONS_FILE"):
            with self.assertRaisesRegex(BadSettings, f"{variable}: /nowhere/x cannot be read"):
                read_files({variable: "/nowhere/x"})


class Numbers(unittest.TestCase):
    def test_bounds_are_numbers_above_0(self):
        self.assertEqual((_number({}, "X", 5), _number({"X": "0.5"}, "X", 5)), (5, 0.5))
        self.assertEqual(_number({"X": "7"}, "X", 5, int), 7)
        for text in ("0", "-1", "nan", "inf", "x"):
            for kind in (int, float):
                with self.subTest(text=text, kind=kind), self.assertRaisesRegex(BadSettings, "X: it must be a"):
                    _number({"X": text}, "X", 5, kind)
        with self.assertRaisesRegex(BadSettings, "whole number"):
            _number({"X": "0.5"}, "X", 5, int)


if __name__ == "__main__":
    unittest.main()
