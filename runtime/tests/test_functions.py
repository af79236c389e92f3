"""Which functions become tools."""

import pathlib
import typing
import unittest

from mcptools.functions import BadTools, public_functions

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples-repo/team/tools/tools.py"


class PublicFunctions(unittest.TestCase):
    def test_those_of_the_example_in_its_order(self):
        self.assertEqual(list(public_functions(EXAMPLE.read_text())), ["count_words", "list_links", "missing_links"])

    def test_what_is_imported_or_starts_with_an_underscore_is_none(self):
        source = "from textwrap import dedent\ndef _own(): pass\nclass Thing: pass\nfew = len\ndef one(): return _own()\n"
        self.assertEqual(list(public_functions(source)), ["one"])

    def test_an_async_function_is_one(self):
        self.assertEqual(list(public_functions("async def later() -> str:\n    return ''\n")), ["later"])

    def test_a_function_works_and_its_annotations_are_found(self):
        source = "from __future__ import annotations\nK = 2\ndef twice(n: int) -> int:\n    return n * K\n"
        twice = public_functions(source)["twice"]
        self.assertEqual(twice(4), 8)
        self.assertEqual(typing.get_type_hints(twice), {"n": int, "return": int})

    def test_a_source_that_cannot_be_read_says_why(self):
        for source, why in (
            ("def f(:", "SyntaxError: .*line 1"),
            ("import not_a_module", "ModuleNotFoundError: No module named 'not_a_module'"),
            ("1 / 0", "ZeroDivisionError"),
            ("x = 1", "no public function"),
        ):
            with self.subTest(source), self.assertRaisesRegex(BadTools, why):
                public_functions(source)


if __name__ == "__main__":
    unittest.main()
