"""Tests of crates.py: each rule is seen to fail. Run by scripts/test."""

import copy
import unittest
from pathlib import Path

import crates

ROOT = Path(__file__).resolve().parents[2]
INDEX = "registry+https://github.com/rust-lang/crates.io-index"
ALLOWED = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-3-Clause"]
RULES = {
    "licenses": {"allow": ALLOWED},
    "bans": {"wildcards": "deny", "deny": [{"name": "ring", "reason": "two providers"}, {"name": "old", "version": "1"}]},
    "sources": {
        "unknown-registry": "deny",
        "unknown-git": "deny",
        "allow-registry": ["https://github.com/rust-lang/crates.io-index"],
        "allow-git": ["https://git.example.com/kept"],
    },
}


def package(name="good", version="1.2.3", license="MIT", dependencies=()):
    """A package as `cargo metadata` tells of it."""
    needs = [{"name": other, "req": req} for other, req in dependencies]
    return {"name": name, "version": version, "license": license, "dependencies": needs}


class Licenses(unittest.TestCase):
    def test_expressions_that_are_met(self):
        for expression in (
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT or GPL-3.0",
            "GPL-3.0/MIT",
            "MIT AND Apache-2.0",
            "(GPL-3.0 OR MIT) AND Apache-2.0",
            "GPL-3.0 AND ISC OR MIT",
            "MIT OR GPL-3.0 AND ISC",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
            "((MIT))",
        ):
            self.assertTrue(crates.is_allowed(expression, ALLOWED), expression)

    def test_expressions_that_are_not_met(self):
        for expression in (
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "MIT AND (GPL-3.0 OR ISC)",
            "(MIT OR Apache-2.0) AND GPL-3.0",
            "GPL-3.0 OR MIT AND ISC",
            # Another license than each of its parts, and than the part with another exception.
            "MIT WITH LLVM-exception",
            "Apache-2.0 WITH GCC-exception-3.1",
            "Apache-2.0 AND MIT WITH LLVM-exception",
            "mit",
            "MIT-0",
        ):
            self.assertFalse(crates.is_allowed(expression, ALLOWED), expression)
        self.assertFalse(crates.is_allowed("Apache-2.0 WITH LLVM-exception", ["Apache-2.0"]))
        self.assertFalse(crates.is_allowed("Apache-2.0", ["Apache-2.0 WITH LLVM-exception"]))

    def test_what_is_no_expression_is_an_error(self):
        for expression in ("", "MIT OR", "AND MIT", "(MIT", "MIT)", "MIT Apache-2.0", "MIT WITH", "MIT, ISC", "()"):
            with self.assertRaises(crates.Failed, msg=expression):
                crates.is_allowed(expression, ALLOWED)

    def test_a_crate_with_a_bad_one_or_none_is_named(self):
        found = crates.problems(
            RULES, [package(license="GPL-3.0"), package("none", license=None), package("odd", license="MIT OR")], []
        )
        self.assertEqual(
            found,
            [
                "good 1.2.3 has a license that is not allowed: GPL-3.0",
                "none 1.2.3 declares no license",
                "odd 1.2.3: no license expression: MIT OR",
            ],
        )


class Bans(unittest.TestCase):
    def test_a_banned_crate_is_named_with_the_reason(self):
        found = crates.problems(RULES, [package("ring"), package("old", "1.9.0"), package("old", "10.0.0")], [])
        self.assertEqual(found, ["old 1.9.0 is banned: see deny.toml", "ring 1.2.3 is banned: two providers"])

    def test_a_wildcard_is_named(self):
        found = crates.problems(RULES, [package(dependencies=[("kube", "^5"), ("serde", "*")])], [])
        self.assertEqual(found, ["good 1.2.3 takes any version of serde"])


class Sources(unittest.TestCase):
    def locked(self, source):
        return crates.problems(RULES, [], [{"name": "a", "version": "1.0.0", "source": source}])

    def test_known_ones_are_good(self):
        for source in (
            INDEX,
            "sparse+https://github.com/rust-lang/crates.io-index/",
            "git+https://git.example.com/kept?rev=1#1234",
            None,
        ):
            self.assertEqual(self.locked(source), [])

    def test_foreign_ones_are_named(self):
        self.assertEqual(self.locked("registry+https://crates.example.com/"), ["a 1.0.0 comes from the registry https://crates.example.com/"])
        self.assertEqual(
            self.locked("git+https://git.example.com/other?branch=main#1234"),
            ["a 1.0.0 comes from the Git repository https://git.example.com/other"],
        )
        self.assertEqual(self.locked("path+file:///tmp/a"), ["a 1.0.0 comes from path+file:///tmp/a"])


class DenyToml(unittest.TestCase):
    text = (ROOT / "deny.toml").read_text()

    def test_ours_is_understood(self):
        rules = crates.read_rules(self.text)
        self.assertIn("MIT", rules["licenses"]["allow"])

    def test_what_is_not_understood_is_an_error(self):
        for old, new in (
            ("[licenses]", "[licenses]\nexceptions = []"),
            ("[sources]", "[advisories]\n[sources]"),
            ('{ name = "ring",', '{ name = "ring", wrappers = ["a"],'),
            ('wildcards = "deny"', 'wildcards = "warn"'),
            ('unknown-git = "deny"', 'unknown-git = "allow"'),
        ):
            self.assertIn(old, self.text)
            with self.assertRaises(crates.Failed, msg=new):
                crates.read_rules(self.text.replace(old, new, 1))

    def test_our_crates_keep_the_rules_and_each_rule_can_fail(self):
        rules = crates.read_rules(self.text)
        linked = crates.linked(ROOT, rules["graph"]["targets"])
        self.assertEqual(crates.problems(rules, linked, []), [])
        for license in rules["licenses"]["allow"]:
            less = copy.deepcopy(rules)
            less["licenses"]["allow"].remove(license)
            self.assertNotEqual(crates.problems(less, linked, []), [], license)
        names = {package["name"] for package in linked}
        self.assertIn("tokio", names)
        self.assertNotIn("ring", names)


if __name__ == "__main__":
    unittest.main()
