"""How drills end: what is told, what is undone, and above all what is called ready and is not. No cluster is needed."""

import collections
import pathlib
import random
import unittest
import unittest.mock

import drills
import drills_all
from drills import FALSE_READY, GOES_ON, REFUSED, TOLD, WHOLE, Drill
from kube_api import Refused

ROOT = pathlib.Path(__file__).parents[2]


def status(ready="True", generation=1, **conditions):
    """An object with these conditions (type: (status, reason))."""
    listed = [{"type": "Ready", "status": ready, "reason": "R", "observedGeneration": generation}]
    listed += [{"type": type_, "status": said[0], "reason": said[1]} for type_, said in conditions.items()]
    return {"metadata": {"generation": 1}, "status": {"conditions": listed}}


class Fake:
    """A subject of which the test says what its status is, and whether it works."""

    kind = "agents"
    namespace = name = "any"

    def __init__(self):
        self.value, self.is_well = status(), True
        self.api = self

    def get(self):
        return self.value

    def works(self):
        return self.is_well

    def why_not(self):
        return "broken"

    def delete(self, *_):
        """It is made anew by `restore`."""

    def restore(self):
        self.value, self.is_well = status(), True


def becomes(value, is_well):
    def act(subject):
        subject.value, subject.is_well = value, is_well

    return act


class DrillsEnd(unittest.TestCase):
    def setUp(self):
        for name, value in {"PAUSE": 0.001, "LOOK_SECONDS": 0.01, "REST_SECONDS": 0}.items():
            self.addCleanup(setattr, drills, name, getattr(drills, name))
            setattr(drills, name, value)

    def play(self, breaks, end, says=""):
        return drills.play(Fake(), Drill("broken", "any", breaks, end, says, Fake.restore, 0.02))

    def test_ready_that_is_not_true_is_counted(self):
        row = self.play(becomes(status(), False), TOLD, "Ready=False")
        self.assertEqual((row.ended, row.is_good), (FALSE_READY, False))
        row = self.play(lambda subject: becomes(status(), False)(subject) or (lambda: True), WHOLE)
        self.assertEqual((row.ended, row.is_good), (FALSE_READY, False))

    def test_a_status_of_an_older_spec_is_not_called_ready(self):
        self.assertEqual(self.play(becomes(status(generation=0), False), TOLD, "Ready=False").ended, "not told")

    def test_what_is_told_beside_ready_is_told(self):
        row = self.play(becomes(status(CardRead=("False", "Invalid")), False), TOLD, r"CardRead=False\(Invalid\)")
        self.assertEqual((row.ended, row.ready_beside, list(row.said)), (TOLD, True, ["CardRead=False(Invalid)"]))
        self.assertIn("beside `Ready=True`", row.line())

    def test_what_was_said_before_is_not_told(self):
        def breaks(subject):
            subject.is_well = False

        subject = Fake()
        subject.value = status(KeysWritten=("False", "Forbidden"))
        row = drills.play(subject, Drill("broken", "any", breaks, TOLD, "KeysWritten=False", seconds=0.02))
        self.assertEqual(row.ended, FALSE_READY)

    def test_what_is_not_undone_is_not_whole(self):
        self.assertEqual(self.play(lambda _: lambda: False, WHOLE).ended, "not whole again")
        self.assertEqual(self.play(lambda _: lambda: True, WHOLE).ended, WHOLE)

    def test_what_goes_on_is_never_seen(self):
        self.assertEqual(self.play(lambda _: None, GOES_ON).ended, GOES_ON)
        self.assertEqual(self.play(becomes(status("False"), True), GOES_ON).ended, "does not go on")
        self.assertEqual(self.play(becomes(status(), False), GOES_ON).ended, "does not go on")

    def test_a_refusal_is_wanted_or_not(self):
        def refused(_):
            raise Refused(403, "no")

        self.assertTrue(self.play(refused, REFUSED).is_good)
        self.assertFalse(self.play(refused, WHOLE).is_good)
        self.assertEqual(self.play(lambda _: None, REFUSED).ended, "not refused")

    def test_those_that_are_drawn_are_quick_and_follow_from_the_seed(self):
        many = [Drill(str(n), "any", becomes(status(), True), TOLD, turn=n % 2) for n in range(20)]
        one, other = (drills.drawn(many, 3, random.Random(7)) for _ in range(2))
        self.assertEqual(one, other)
        self.assertEqual((len(one), {drill.turn for drill in one}), (3, {0}))


class DrillsAreWrittenDown(unittest.TestCase):
    def test_each_drill_has_a_row_in_the_guide(self):
        images = collections.defaultdict(lambda: "registry/image")
        lanes = drills_all.lanes(unittest.mock.Mock(images=images, root=ROOT))
        made = [(lane.subjects[drill.subject].kind, drill.what) for lane in lanes for drill in lane.drills]
        guide, kind, rows = ROOT / "docs/drills.md", None, []
        for line in guide.read_text().splitlines():
            if line.startswith("## "):
                kind = line[3:].lower()
            elif kind and line.startswith("| ") and not line.startswith("| what is broken |"):
                rows.append((kind, line.split("|")[1].strip()))
        self.assertEqual(collections.Counter(made), collections.Counter(rows))


if __name__ == "__main__":
    unittest.main()
