"""Which keys are good, without LiteLLM."""

import json
import shutil
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from convoke_proxy import keys

from .running import NAMESPACE, SIGNING_KEY, key

NOW = 1_800_000_000
UID = "7c1f2a44-0000-4000-8000-000000000001"


class Keys(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="convoke-keys-"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "signing-key").write_text(SIGNING_KEY + "\n")
        self.now = NOW
        self.lines = []
        self.names = []
        self.list(("writer", UID, NOW - 86400))
        self.ring = self.keyring()
        # Files are looked at each time: how seldom they are is a test of its own.
        patch = mock.patch.object(keys, "LOOK_SECONDS", 0)
        patch.start()
        self.addCleanup(patch.stop)

    def keyring(self):
        folder = self.folder
        return keys.Keyring(
            folder / "signing-key", folder / "agents.json", self.lines.append, self.names.append, lambda: self.now
        )

    def list(self, *agents):
        listed = [dict(zip(("name", "uid", "issued"), agent, strict=True)) for agent in agents]
        self.write(json.dumps({"namespace": NAMESPACE, "agents": listed}))

    def write(self, text):
        (self.folder / "new").write_text(text)
        (self.folder / "new").replace(self.folder / "agents.json")

    def good(self, *arguments, **more):
        caller = self.ring.caller(key(*arguments, **more))
        return caller and caller.agent

    def test_the_operator_makes_the_same_key(self):
        # The operator's tests (src/controllers/model_api/tests/keys.rs) check the same one.
        mac = "b03a6c15d3305bbf50209329cb6b0ede0d51f5255ae1dafa4987f93f59789068"
        made = f"sk-cvk-writer.{UID}.1800000000.{mac}"
        self.list(("writer", UID, 1_800_000_000))
        self.assertEqual(self.ring.caller(made), keys.Caller("writer"))

    def test_a_listed_key_is_good_at_any_age(self):
        self.assertEqual(self.good("writer", UID, NOW - 86400), "writer")
        self.now += 10 * 365 * 86400
        self.assertEqual(self.good("writer", UID, NOW - 86400), "writer")

    def test_a_key_that_is_not_listed_is_good_for_ten_minutes(self):
        for age, expected in ((0, "reader"), (600, "reader"), (601, None), (-601, None)):
            with self.subTest(age=age):
                self.assertEqual(self.good("reader", UID, NOW - age), expected)

    def test_a_newer_key_than_the_listed_one_is_good_for_ten_minutes(self):
        self.assertEqual(self.good("writer", UID, NOW - 600), "writer")
        self.assertIsNone(self.good("writer", UID, NOW - 601))

    def test_an_older_key_than_the_listed_one_is_not_good(self):
        self.list(("writer", UID, NOW))
        self.assertIsNone(self.good("writer", UID, NOW - 1))
        self.assertIsNone(self.good("writer", UID, NOW - 86400))

    def test_of_two_entries_the_newest_counts(self):
        self.list(("writer", UID, NOW - 10), ("writer", UID, NOW - 5))
        self.assertIsNone(self.good("writer", UID, NOW - 10))
        self.assertEqual(self.good("writer", UID, NOW - 5), "writer")

    def test_a_key_of_another_uid_is_not_good_even_when_it_is_new(self):
        self.assertIsNone(self.good("writer", "another", NOW))

    def test_what_does_not_fit_the_signing_key_is_not_good(self):
        self.assertIsNone(self.good("writer", UID, NOW - 86400, namespace="other"))
        self.assertIsNone(self.good("writer", UID, NOW - 86400, signing_key=SIGNING_KEY + "0"))
        made = key("writer", UID, NOW - 86400)
        last = "0" if made[-1] != "0" else "1"
        wrong = [made[:-1] + last, made[:-1], made + "0", made.upper(), made.replace("writer", "reader"), "", "sk-cvk-"]
        for wrong_key in (*wrong, made.replace("sk-cvk-", "sk-"), made + "\n", f"sk-cvk-.{UID}.1.{'0' * 64}"):
            with self.subTest(key=wrong_key):
                self.assertIsNone(self.ring.caller(wrong_key))

    def test_a_removed_agent_is_refused_as_soon_as_the_list_says_so(self):
        self.assertEqual(self.good("writer", UID, NOW - 86400), "writer")
        self.list(("reader", UID, NOW))
        self.assertIsNone(self.good("writer", UID, NOW - 86400))
        self.assertEqual(self.names, [{"writer"}, {"reader"}])

    def test_files_are_looked_at_once_a_second(self):
        with mock.patch.object(keys, "LOOK_SECONDS", 1000):
            self.list()
            self.assertEqual(self.good("writer", UID, NOW - 86400), "writer")

    def test_a_new_signing_key_ends_what_the_old_one_signed(self):
        (self.folder / "signing-key").write_text(SIGNING_KEY[::-1])
        self.assertIsNone(self.good("writer", UID, NOW - 86400))
        self.assertEqual(self.good("writer", UID, NOW - 86400, signing_key=SIGNING_KEY[::-1]), "writer")

    def test_a_broken_list_changes_nothing_and_is_told_once(self):
        bad = ("{", "[]", '{"namespace": "team"}', '{"namespace": "team", "agents": [{"name": "a"}]}')
        for text in (*bad, json.dumps({"namespace": "team", "agents": [{"name": "A b", "uid": "1", "issued": 1}]})):
            with self.subTest(text=text):
                self.write(text)
                self.assertEqual(self.good("writer", UID, NOW - 86400), "writer")
                said = len(self.lines)
                self.assertEqual(self.good("writer", UID, NOW - 86400), "writer")
                self.assertEqual(len(self.lines), said)
                self.assertIsNone(self.ring.problem())
        self.assertIn("what was read before stays", self.lines[0])

    def test_without_files_no_key_is_good_and_it_says_why(self):
        (self.folder / "agents.json").unlink()
        self.ring = self.keyring()
        self.assertIsNone(self.good("writer", UID, NOW))
        self.assertIn("No such file", self.ring.problem())
        self.list(("writer", UID, NOW))
        self.assertIsNone(self.ring.problem())
        self.assertEqual(self.good("writer", UID, NOW), "writer")

    def test_a_signing_key_that_is_too_short_signs_nothing(self):
        (self.folder / "signing-key").write_text("short")
        self.ring = self.keyring()
        self.assertIsNone(self.good("writer", UID, NOW - 86400, signing_key="short"))
        self.assertEqual(self.ring.problem(), "signing-key has less than 32 bytes")


if __name__ == "__main__":
    unittest.main()
