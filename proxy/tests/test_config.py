"""What LiteLLM is told, without LiteLLM."""

import json
import tempfile
import unittest
from pathlib import Path

from convoke_proxy import config

from .running import proxy_config

MINE = {"general_settings": {"custom_auth": None, "master_key": "sk-1234"}, "environment_variables": {"A": "b"}}


class Configuration(unittest.TestCase):
    def setUp(self):
        self.lines = []

    def made(self, **more):
        return config.litellm_config(proxy_config(**more), self.lines.append)

    def test_what_the_operator_writes_is_kept(self):
        made = self.made()
        self.assertEqual(made["model_list"], proxy_config()["model_list"])
        self.assertTrue(made["litellm_settings"]["drop_params"])
        self.assertEqual(self.lines, [])

    def test_nothing_of_the_owner_switches_authentication_off(self):
        made = self.made(**MINE, include=["other.yaml"], pass_through_endpoints=[{"path": "/x"}])
        self.assertEqual(made["general_settings"], config.GENERAL)
        self.assertEqual(set(made), {"model_list", "litellm_settings", "router_settings", "general_settings"})
        self.assertEqual(
            self.lines,
            [
                "the configuration says what is not taken from it: "
                "environment_variables, general_settings, include, pass_through_endpoints"
            ],
        )

    def test_callbacks_of_the_owner_stay_beside_the_own_one(self):
        settings = self.made(litellm_settings={"callbacks": "langfuse", "set_verbose": True})["litellm_settings"]
        self.assertEqual(settings["callbacks"], ["langfuse", "convoke_proxy.litellm_hooks.usage"])
        self.assertNotIn("set_verbose", settings)
        self.assertIn("set_verbose", self.lines[0])
        self.assertTrue(settings["turn_off_message_logging"])

    def test_aliases_are_names_of_models(self):
        made = self.made(router_settings={"model_group_alias": {"fast": "small"}})
        self.assertEqual(config.model_names(made), ["small", "vectors", "fast"])

    def test_what_is_no_configuration_is_told_with_its_place(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "config.yaml")
            for text, expected in (
                ("a: [", "is no YAML, line 1"),
                ("[]", "is no YAML mapping"),
                (None, "No such file"),
            ):
                if text is None:
                    path.unlink()
                else:
                    path.write_text(text)
                with self.assertRaisesRegex(config.Invalid, expected):
                    config.read(path)
        nameless = {"litellm_params": {"model": "openai/x"}}
        for models in (
            [],
            {},
            ["x"],
            [{}],
            None,
            [nameless],
            [{"model_name": "x"}],
            [{"model_name": "x", "litellm_params": 1}],
        ):
            with self.assertRaises(config.Invalid):
                config.litellm_config({"model_list": models}, self.lines.append)

    def test_the_written_file_is_for_its_user_only(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(config.write(self.made(), folder))
            self.assertEqual(path.stat().st_mode & 0o777, 0o600)
            self.assertEqual(json.loads(path.read_text()), self.made())


class Environment(unittest.TestCase):
    def test_no_database_and_no_other_configuration_come_from_the_pod(self):
        given = {"DATABASE_URL": "x", "LITELLM_WORKER_STARTUP_HOOKS": "x", "LITELLM_LOG": "DEBUG", "OPENAI_ORG": "o"}
        made = config.environment(given | {"CONFIG_FILE_PATH": "/etc/other", "WORKER_CONFIG": "{}"}, "sk-1", "/tmp/c")
        self.assertEqual(
            made, config.SETTINGS | {"LITELLM_MASTER_KEY": "sk-1", "CONFIG_FILE_PATH": "/tmp/c", "OPENAI_ORG": "o"}
        )
        self.assertEqual(made["LITELLM_LOG"], "ERROR")

    def test_fields_that_the_owner_allows_are_never_litellm_s(self):
        own = frozenset(("api_base",)).__contains__
        self.assertEqual(config.owner_fields({config.FIELDS: "top_k, thinking,"}, own), {"top_k", "thinking"})
        self.assertEqual(config.owner_fields({}, own), frozenset())
        for text in ("api_base", "top_k,a-b", "a b"):
            with self.assertRaisesRegex(config.Invalid, "cannot be allowed"):
                config.owner_fields({config.FIELDS: text}, own)

    def test_a_providers_key_with_a_line_break_is_told_and_not_quoted(self):
        entry = lambda key: {"model_name": "m", "litellm_params": {"model": "openai/m", "api_key": key}}
        made = lambda key: {"model_list": [entry(key)]}
        of_variable = made("os.environ/PROXY_API_KEY")
        for value in (None, "", "sk-key"):
            config.check_keys(of_variable, {} if value is None else {"PROXY_API_KEY": value})
        config.check_keys(made(None), {})
        for document, value, what in (
            (of_variable, "canary\n", "PROXY_API_KEY contains a line break: make the Secret without one"),
            (made("canary\r\n"), "", "api_key of entry 1 of model_list contains a line break"),
        ):
            with self.assertRaises(config.Invalid) as raised:
                config.check_keys(document, {"PROXY_API_KEY": value})
            self.assertIn(what, str(raised.exception))
            self.assertNotIn("canary", str(raised.exception))

    def test_a_master_key_is_one_line_and_not_short(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "master-key")
            path.write_text("sk-0123456789abcdef\n")
            self.assertEqual(config.master_key(path), "sk-0123456789abcdef")
            for text in ("sk-1234", "", "\u00e9" * 20):
                path.write_text(text)
                with self.assertRaises(config.Invalid):
                    config.master_key(path)


if __name__ == "__main__":
    unittest.main()
