"""Tests of licences.py: each rule is seen to fail. Run by scripts/test."""

import contextlib
import hashlib
import io
import json
import subprocess
import tarfile
import tempfile
import unittest
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import image_recipes
import licences

ROOT = Path(__file__).resolve().parents[2]
LOCK = "proxy/requirements.txt"
TEXT = "Redistribution and use are permitted."
RULES = f"""
also = ["MPL-2.0"]

[refused]
litellm-enterprise = "it is proprietary"

[folders]
litellm = ["enterprise"]

[python.read]
licence = "BSD-3-Clause"
file = "licenses/LICENSE"
sha256 = "{hashlib.sha256(TEXT.encode()).hexdigest()}"

[python.pinned]
licence = "MIT"
version = "1.0"
where = "its repository"

[python.strict]
licence = "LGPL-2.1-only"
version = "1.0"
where = "its repository"

[python.kept]
licence = "MIT AND LGPL-2.1-only"
version = "1.0"
where = "its repository"
accepted = "a library in a file of its own"
"""
DENY = '[licenses]\nallow = ["Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-3-Clause", "MIT"]\n'


def metadata(*lines):
    return HeaderParser().parsestr("\n".join(("Metadata-Version: 2.4", *lines, "", "MIT is only named here.")))


class Declared(unittest.TestCase):
    def test_an_expression_counts_before_all_else(self):
        both = metadata("License-Expression: MIT OR GPL-3.0", "License: GPL-3.0", "Classifier: License :: Other")
        self.assertEqual(licences.python_licence(both), ("MIT OR GPL-3.0", None))

    def test_words_for_a_licence_become_that_of_the_list(self):
        for text, licence in (
            ("MIT", "MIT"),
            ("Apache 2.0", "Apache-2.0"),
            ("MPL-2.0 AND MIT", "MPL-2.0 AND MIT"),
            ("Beer", "Beer"),
        ):
            self.assertEqual(licences.python_licence(metadata(f"License: {text}")), (licence, None))

    def test_classifiers_count_when_there_is_nothing_else(self):
        mit, isc = (
            "Classifier: License :: OSI Approved :: MIT License",
            "Classifier: License :: OSI Approved :: ISC License (ISCL)",
        )
        self.assertEqual(licences.python_licence(metadata(mit)), ("MIT", None))
        self.assertEqual(licences.python_licence(metadata("License: UNKNOWN", mit, isc)), ("MIT AND ISC", None))
        self.assertEqual(licences.python_licence(metadata("License: Apache-2.0", mit)), ("Apache-2.0", None))

    def test_what_is_not_clear_is_none(self):
        gpl = "Classifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)"
        bsd = "Classifier: License :: OSI Approved :: BSD License"
        for lines, why in (
            ((), "no licence"),
            (("License: UNKNOWN",), "no licence"),
            (("Classifier: Programming Language :: Python",), "no licence"),
            ((bsd,), "names no version"),
            ((gpl,), "not known"),
            (("License: MIT", gpl), "not known"),
            (("License: The MIT License", "  Permission is hereby granted"), "whole text"),
        ):
            licence, doubt = licences.python_licence(metadata(*lines))
            self.assertIsNone(licence, lines)
            self.assertIn(why, doubt)

    def test_what_package_json_says(self):
        for manifest, licence in (
            ({"license": "(MIT OR GPL-3.0)"}, "(MIT OR GPL-3.0)"),
            ({"license": {"type": "ISC"}}, "ISC"),
            ({"licenses": [{"type": "Apache 2.0"}]}, "Apache-2.0"),
            ({"licenses": [{"type": "MIT"}, {"type": "GPL-2.0"}]}, None),
            ({"license": ""}, None),
            ({}, None),
        ):
            self.assertEqual(licences.npm_licence(manifest)[0], licence, manifest)


class Locks(unittest.TestCase):
    def test_pip(self):
        lines = ("# made by uv", "A_b.c==1.0 \\", "    --hash=sha256:12 \\", "    --hash=sha256:34")
        lines += ("d==2 ; sys_platform == 'win32' \\", "    --hash=sha256:56", "e[f]==3")
        found = licences.pip_lock("\n".join(lines))
        self.assertEqual(found, [("a-b-c", "1.0", False), ("d", "2", True), ("e", "3", False)])
        for other in (
            "-e .",
            "a @ https://example.com/a.whl",
            "a>=1",
            "--index-url=https://example.com",
            "-r more.txt",
        ):
            with self.assertRaises(licences.Failed, msg=other):
                licences.pip_lock(f"b==1 \\\n    --hash=sha256:12\n{other}\n")

    def test_a_refused_package_is_named_in_each_lock_however_it_is_written(self):
        rules = licences.read_rules(RULES, DENY)
        for lock in (LOCK, "runtime/compatibility/mcp-1.txt"):
            for name in ("litellm-enterprise", "LiteLLM_Enterprise"):
                found = dict.fromkeys([*licences.IMAGES, *licences.TESTS], []) | {
                    lock: licences.pip_lock(f"{name}==0.1.83")
                }
                problems = licences.lock_problems(rules, found)
                self.assertEqual(len(problems), 1, problems)
                for part in ("litellm-enterprise 0.1.83", lock, "proprietary", "hint"):
                    self.assertIn(part, problems[0])

    def test_a_lock_that_nobody_knows_and_one_that_is_gone_are_named(self):
        rules = licences.read_rules(RULES, DENY)
        found = dict.fromkeys([*licences.IMAGES, *licences.TESTS], [])
        self.assertEqual(licences.lock_problems(rules, found), [])
        del found[LOCK]
        first, second = licences.lock_problems(rules, found | {"new/requirements.txt": []})
        self.assertIn("new/requirements.txt: nobody checks", first)
        self.assertIn(f"{LOCK}: there is no such lock", second)

    def test_locks_are_known_by_what_is_in_them(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "any.txt").write_text("a==1 --hash=sha256:12")
            (root / "npm.json").write_text('{"lockfileVersion": 3}')
            (root / "notes.txt").write_text("nothing")
            for command in (["init", "--quiet"], ["add", "."]):
                subprocess.run(["git", *command], cwd=root, check=True)
            self.assertEqual(list(licences.locks(root)), ["any.txt", "npm.json"])
            (root / "uv.lock").write_text("")
            subprocess.run(["git", "add", "."], cwd=root, check=True)
            with self.assertRaisesRegex(licences.Failed, "uv.lock"):
                list(licences.locks(root))


class Packages(unittest.TestCase):
    """Packages in a virtual environment, and the lock that it is made of."""

    def setUp(self):
        self.rules = licences.read_rules(RULES, DENY)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.site = self.root / "lib/python3.11/site-packages"
        self.site.mkdir(parents=True)
        self.wanted = []

    def package(self, name, *lines, version="1.0", files=()):
        """Installs a package, and names it in the lock."""
        info = f"{name}-{version}.dist-info"
        contents = {f"{info}/METADATA": "\n".join((f"Name: {name}", f"Version: {version}", *lines, ""))} | dict(files)
        for path, text in contents.items():
            (self.site / path).parent.mkdir(parents=True, exist_ok=True)
            (self.site / path).write_text(text)
        rows = "".join(f"{path},sha256=abc,1\n" for path in contents)
        (self.site / info / "RECORD").write_text(rows)
        self.wanted.append((licences.normal(name), version, False))

    def report(self):
        return licences.compare(LOCK, self.wanted, licences.installed(self.root / "bin/python"), self.rules)

    def finding(self, *parts):
        """The one problem there is, which has these parts."""
        problems = self.report().problems
        self.assertEqual(len(problems), 1, problems)
        for part in (*parts, f"in {LOCK}", "hint: "):
            self.assertIn(part, problems[0])

    def test_good_ones(self):
        for name, licence in (
            ("mit", "MIT"),
            ("choice", "GPL-3.0-only OR MIT"),
            ("both", "MPL-2.0 AND (Apache-2.0 OR GPL-2.0-only)"),
            ("with", "Apache-2.0 WITH LLVM-exception"),
        ):
            self.package(name, f"License-Expression: {licence}")
        self.package("old", "Classifier: License :: OSI Approved :: MIT License")
        report = self.report()
        self.assertEqual(report.problems, [])
        self.assertEqual(report.counts["MIT"], 2)

    def test_a_gpl_package(self):
        self.package("evil", "License-Expression: GPL-3.0-only")
        self.finding("evil 1.0 (GPL-3.0-only)", "not a licence of the list")

    def test_one_that_has_to_be_met_with_the_others(self):
        self.package("evil", "License: MIT AND (AGPL-3.0-only OR LGPL-2.1-only)")
        self.finding("evil 1.0 (MIT AND (AGPL-3.0-only OR LGPL-2.1-only))", "not a licence of the list")

    def test_one_with_a_classifier_only(self):
        self.package("evil", "Classifier: License :: OSI Approved :: GNU Affero General Public License v3")
        self.finding("evil 1.0 (no licence)", "GNU Affero")

    def test_one_without_a_licence(self):
        self.package("silent", "Summary: MIT")
        self.finding("silent 1.0 (no licence)", "declares no licence", "read its LICENSE file")

    def test_one_whose_words_are_no_expression(self):
        for number, words in enumerate(("Dual License", "MIT/GPL", "MIT, see LICENSE", "SEE LICENSE IN LICENSE")):
            self.wanted.clear()
            self.package("odd", f"License: {words}", version=str(number))
            found = [problem for problem in self.report().problems if problem.startswith(f"odd {number} (no licence)")]
            self.assertEqual(len(found), 1, words)

    def test_the_refused_one_and_what_must_not_be_in_a_package(self):
        self.package("litellm_enterprise", "License-Expression: MIT")
        self.finding("is refused: it is proprietary")
        self.package("litellm", "License-Expression: MIT", files={"litellm/proxy/enterprise/hooks.py": ""})
        self.assertIn(
            "litellm 1.0 (MIT), in proxy/requirements.txt: has a folder enterprise", "".join(self.report().problems)
        )

    def test_an_entry_counts_for_the_text_that_was_read(self):
        bsd = "Classifier: License :: OSI Approved :: BSD License"
        self.package("read", bsd, files={"read-1.0.dist-info/licenses/LICENSE": TEXT})
        report = self.report()
        self.assertEqual((report.problems, report.counts["BSD-3-Clause"]), ([], 1))
        # Another place, or another text.
        self.package("read", bsd, files={"read/licenses/LICENSE": TEXT})
        self.finding("has another licenses/LICENSE than was read")
        self.package("read", bsd, files={"read-1.0.dist-info/licenses/LICENSE": "All rights reserved."})
        self.finding("has another licenses/LICENSE than was read")

    def test_an_entry_of_one_version_counts_for_it(self):
        self.package("pinned")
        self.assertEqual(self.report().problems, [])
        self.wanted.clear()
        self.package("pinned", version="1.1")
        self.assertIn("was read of 1.0 only", "".join(self.report().problems))

    def test_an_entry_is_judged_too_and_one_that_is_accepted_is_told(self):
        self.package("strict")
        self.finding("strict 1.0 (LGPL-2.1-only)", "not a licence of the list")

    def test_what_is_accepted_is_told(self):
        self.package("kept", "License-Expression: MIT", files={"kept.libs/libother-1234.so.2": ""})
        report = self.report()
        self.assertEqual(report.problems, [])
        self.assertIn("kept 1.0 (MIT AND LGPL-2.1-only) is accepted: a library", report.accepted[0])

    def test_an_entry_that_is_not_needed(self):
        self.package("pinned", "License-Expression: MIT")
        self.finding("is clear by its metadata")

    def test_libraries_of_others(self):
        for number, path in enumerate(("x.libs/foo.so", "x/libfoo.so", "libfoo-1.so.2.3")):
            self.package(f"carrier{number}", "License-Expression: MIT", files={path: ""})
        self.package(
            "own",
            "License-Expression: MIT",
            files={"own/_speed.cpython-313-x86_64-linux-gnu.so": "", "own/library.py": ""},
        )
        self.assertEqual(len(self.report().problems), 3)

    def test_a_version_that_is_not_the_one_of_the_lock(self):
        self.package("other", "License-Expression: MIT")
        self.wanted = [("other", "1.1", False), ("elsewhere", "1.0", True)]
        problems = self.report().problems
        self.assertEqual(len(problems), 2, problems)
        self.assertIn("other 1.0 (MIT), in proxy/requirements.txt: is not in the lock", problems[0])
        self.assertIn("other 1.1 (no licence), in proxy/requirements.txt: is not there", problems[1])


class Archives(unittest.TestCase):
    def test_a_wheel(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "read-2.0-py3-none-any.whl"
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("read-2.0.dist-info/METADATA", "Name: read\nVersion: 2.0\nLicense: BSD\n")
                archive.writestr("read-2.0.dist-info/licenses/LICENSE", TEXT)
            package = licences.wheel(path)
            self.assertEqual((package.key, package.version, package.declared), ("read", "2.0", "BSD"))
            self.assertEqual(licences.judged(package, licences.read_rules(RULES, DENY)), ("BSD-3-Clause", None, None))

    def test_npm_packages_with_others_inside(self):
        manifests = {
            "package/package.json": {"name": "@a/outer", "version": "1.0.0", "license": "MIT"},
            "package/node_modules/@b/inner/package.json": {
                "name": "@b/inner",
                "version": "2.0.0",
                "license": "GPL-2.0",
            },
            "package/node_modules/c/node_modules/d/package.json": {"name": "d", "version": "3.0.0"},
            # Says only of which kind its modules are.
            "package/dist/package.json": {"type": "module"},
        }
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as tar:
            for name, manifest in manifests.items():
                data = json.dumps(manifest).encode()
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        packages = list(licences.npm_contents(content.getvalue()))
        report = licences.compare("npm.json", [], packages, licences.read_rules(RULES, DENY))
        self.assertEqual([package.name for package in packages], ["@a/outer", "@b/inner", "d"])
        self.assertEqual(len(report.problems), 2, report.problems)
        self.assertIn("@b/inner 2.0.0 (GPL-2.0), in npm.json", report.problems[0])
        self.assertIn("d 3.0.0 (no licence), in npm.json", report.problems[1])
        self.assertEqual(packages[0].read("dist/package.json"), b'{"type": "module"}')


class Ours(unittest.TestCase):
    text, deny = (ROOT / "scripts/lib/licences.toml").read_text(), (ROOT / "deny.toml").read_text()

    def test_the_rules_are_understood_and_have_the_licences_of_crates(self):
        rules = licences.read_rules(self.text, self.deny)
        self.assertLessEqual({"MIT", "Apache-2.0", "MPL-2.0"}, rules["allowed"])
        self.assertIn("litellm-enterprise", rules["refused"])
        for licence in ("GPL-3.0-only", "LGPL-2.1-only", "AGPL-3.0-only", "BUSL-1.1"):
            self.assertFalse(licences.is_allowed(licence, rules))

    def test_what_is_not_understood_is_an_error(self):
        for old, new in (
            ("[refused]", "[exceptions]\n[refused]"),
            ('version = "0.23.3"', ""),
            ('where = "package.json"', 'where = "package.json"\nfile = "LICENSE"'),
            ('licence = "CC-BY-3.0"', 'license = "CC-BY-3.0"'),
        ):
            self.assertIn(old, self.text)
            with self.assertRaises(licences.Failed, msg=new):
                licences.read_rules(self.text.replace(old, new, 1), self.deny)

    def test_each_lock_can_be_read_and_is_for_an_image_that_there_is(self):
        rules = licences.read_rules(self.text, self.deny)
        found = {name: licences.read_lock(ROOT / name) for name in licences.locks(ROOT)}
        self.assertEqual(licences.lock_problems(rules, found), [])
        self.assertEqual([name for name, packages in found.items() if not packages], [])
        self.assertLessEqual(set(licences.IMAGES.values()), image_recipes.RECIPES.keys())

    def test_an_entry_that_no_package_has_is_named(self):
        rules = licences.read_rules(RULES, DENY)
        report = licences.Report(
            LOCK, names={("python", "read"), ("python", "pinned"), ("npm", "kept"), ("python", "strict")}
        )
        self.assertEqual([problem.partition(":")[0] for problem in licences.unused(rules, [report])], ["kept"])

    def test_the_program_says_what_it_is_asked_and_ends_with_it(self):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.assertEqual(licences.main(ROOT, "locks"), 0)
            self.assertEqual(licences.main(ROOT, "installed", "no/such.txt", "python3"), 1)
            self.assertEqual(licences.main(ROOT, "what"), 2)
        self.assertIn("no/such.txt", said.getvalue())


if __name__ == "__main__":
    unittest.main()
