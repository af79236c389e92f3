"""Drills: one thing is broken, and then it is measured what the statuses say, and how long until they say so.

A drill names what is broken and how that ends. Drills of one lane run one after the other, lanes run side by side. What
nobody looks at for an hour is broken for all lanes together, and then the operator is started anew: after a start it
looks at everything. Standard library only.
"""

import collections.abc
import dataclasses
import re
import threading
import time

from kube_api import Refused

# How a drill ends.
WHOLE = "whole again"
TOLD = "told"
GOES_ON = "goes on"
REFUSED = "refused"
# How it must not end: the status says that it is ready, of its newest spec, and it does not do its job.
FALSE_READY = "FALSE READY"

# What is told later than this is not told (or as a drill says).
SECONDS = 120
WHOLE_SECONDS = 240
# For what goes on: how long that is looked at.
LOOK_SECONDS = 15
PAUSE = 0.25
# Between the delete of a subject and a new one.
REST_SECONDS = 2
# Wrong while they are not `True`.
GOOD = ("Ready", "Available", "DependenciesReady", "PeersResolved", "CardRead", "ToolsDiscovered", "Reachable")
# Wrong while they are there with this status.
BAD = {
    "Conflict": "True",
    "ToolsChanged": "True",
    "ToolsAvailable": "False",
    "InputsFollowed": "False",
    "KeysWritten": "False",
    "ModelServed": "False",
    "ModelReachable": "False",
}
PREFIXES = {"agents": "agent", "mcpservers": "mcpserver", "modelapis": "modelapi"}
NO_ANSWER = (AssertionError, OSError, KeyError, ValueError, TypeError, IndexError)


class Subject:
    """What is broken: an Agent, MCPServer or ModelAPI. `does_its_job` raises what NO_ANSWER has when it does not."""

    def __init__(self, stage, kind, name, namespace, does_its_job, objects):
        self.stage, self.api = stage, stage.api
        self.kind, self.name, self.namespace = kind, name, namespace
        self.does_its_job = does_its_job
        # All that is to be applied for it; its own definition is the last.
        self.objects = objects
        self.child = f"{PREFIXES[kind]}-{name}"

    def get(self):
        return self.api.get(self.kind, self.namespace, self.name)

    def deployment(self):
        return self.api.get("deployments", self.namespace, self.child)

    def container(self):
        return self.deployment()["spec"]["template"]["spec"]["containers"][0]

    def service(self):
        return self.api.get("services", self.namespace, self.child)

    def pods(self):
        return self.stage.pods(PREFIXES[self.kind], self.name, self.namespace)

    def spec(self, patch):
        """Changes its spec, as a person does."""
        self.api.merge(self.kind, self.namespace, self.name, {"spec": patch})

    def restore(self):
        """Its spec is as it was. It is made if it is not there."""
        now, wanted = self.get(), self.objects[-1]
        if now is None:
            self.stage.apply(wanted)
            return
        value = {**now, "spec": wanted["spec"]}
        self.api.request("PUT", self.api.path(self.kind, self.namespace, self.name), value)

    def endpoint(self):
        return self.get()["status"]["endpoint"]

    def works(self):
        """Whether it does its job."""
        try:
            self.does_its_job(self)
        except NO_ANSWER:
            return False
        return True

    def why_not(self):
        try:
            self.does_its_job(self)
        except NO_ANSWER as error:
            return str(error)[:300]
        return "it works"


def says_ready(value):
    """Whether the status of an object says that its newest spec is ready."""
    for one in (value.get("status") or {}).get("conditions", []):
        if one["type"] == "Ready":
            return one["status"] == "True" and one.get("observedGeneration") == value["metadata"]["generation"]
    return False


def oddities(value):
    """What the status of an object says is wrong: (condition, message) pairs."""
    found = []
    for one in (value.get("status") or {}).get("conditions", []):
        type_, status = one["type"], one["status"]
        if (type_ in GOOD and status != "True") or BAD.get(type_) == status:
            found.append((f"{type_}={status}({one['reason']})", one.get("message", "")))
    return found


@dataclasses.dataclass(frozen=True)
class Drill:
    """One thing that is broken."""

    what: str
    subject: str
    # Breaks it. Gives, for what is to be undone, what tells that it is.
    breaks: collections.abc.Callable
    end: str
    # For what is to be told: a pattern of `Condition=Status(Reason) message`.
    says: str = ""
    # Repairs it.
    mends: collections.abc.Callable | None = None
    seconds: float = SECONDS
    # Nobody looks before the operator is started anew. Drills of one turn are broken together.
    turn: int = 0


@dataclasses.dataclass
class Row:
    """What came of a drill."""

    kind: str
    drill: Drill
    said: dict
    ended: str
    seconds: float
    note: str = ""
    # Whether the status said Ready=True while the job was not done, when the drill ended.
    ready_beside: bool = False

    @property
    def is_good(self):
        return self.ended == self.drill.end

    def line(self):
        """A line of the table."""
        said = "; ".join(f"`{text}` {seconds:.1f} s" for text, seconds in self.said.items()) or "nothing"
        ended = f"{self.ended}, {self.seconds:.1f} s"
        if self.ready_beside and self.ended == TOLD:
            ended += ", beside `Ready=True`"
        if self.note:
            ended += f" ({self.note})"
        return f"| {self.kind} | {self.drill.what} | {said} | {ended} |"


class Watch:
    """Looks at a status until a drill has ended."""

    def __init__(self, subject):
        self.subject = subject
        self.usual = {text for text, _ in oddities(subject.get())}
        self.began = time.monotonic()
        self.said = {}
        self.now = []
        self.is_ready = False

    def seconds(self):
        return time.monotonic() - self.began

    def look(self):
        """Takes note of what the status says now."""
        value = self.subject.get()
        if value is None:
            return
        self.is_ready = says_ready(value)
        self.now = [pair for pair in oddities(value) if pair[0] not in self.usual]
        for text, _ in self.now:
            self.said.setdefault(text, self.seconds())

    def has_ended(self, drill, undone):
        """Whether what is to happen has happened."""
        self.look()
        if drill.end == TOLD:
            return any(re.search(drill.says, f"{text} {message}") for text, message in self.now)
        return undone() and self.is_ready and self.subject.works()

    def until(self, drill, undone):
        """How a drill ends."""
        while self.seconds() < drill.seconds:
            try:
                if self.has_ended(drill, undone):
                    return drill.end
            except NO_ANSWER:
                # A child that is not there at this moment.
                pass
            time.sleep(PAUSE)
        self.look()
        if self.is_ready and not self.subject.works():
            return FALSE_READY
        return f"not {drill.end}"

    def goes_on(self):
        """Whether nothing of it is seen."""
        while self.seconds() < LOOK_SECONDS:
            self.look()
            if not (self.is_ready and self.subject.works()):
                return "does not go on"
            time.sleep(1)
        return GOES_ON


@dataclasses.dataclass
class Lane:
    """Drills that run one after the other."""

    subjects: dict
    drills: list

    def set_up(self, stage):
        """Makes the subjects of the drills."""
        wanted = {}
        for name in dict.fromkeys(drill.subject for drill in self.drills):
            for value in self.subjects[name].objects:
                meta = value["metadata"]
                wanted[value["kind"], meta.get("namespace"), meta["name"]] = value
        if wanted:
            stage.apply(*wanted.values())


def is_whole(subject):
    value = subject.get()
    return value is not None and says_ready(value) and subject.works() and not is_told_wrong(value)


def is_told_wrong(value):
    """Whether a status is still about the last drill."""
    last = ("Ready=", "CardRead=", "ToolsDiscovered=", "Reachable=", "DependenciesReady=", "ToolsAvailable=")
    return any(text.startswith(last) for text, _ in oddities(value))


def wait_whole(subject, seconds=WHOLE_SECONDS):
    """Waits until a subject is as it is to be. Gives what is wrong, if it never is."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if is_whole(subject):
                return ""
        except NO_ANSWER:
            pass
        time.sleep(PAUSE)
    value = subject.get()
    said = value and [text for text, _ in oddities(value)]
    return f"before it or after it, not whole in {seconds} s: {said}, {subject.why_not()}"


def play(subject, drill, broken=lambda: None):
    """One drill; gives its row. `broken` is called when it is broken."""
    row = Row(subject.kind, drill, {}, "", 0)
    try:
        row.note = wait_whole(subject)
        if row.note:
            row.ended = "error"
            return row
        watch = Watch(subject)
        row.said = watch.said
        try:
            undone = drill.breaks(subject) or (lambda: True)
        except Refused as refused:
            row.ended, row.note = REFUSED, f"HTTP {refused.code}"
            return row
        finally:
            broken()
        if drill.end == REFUSED:
            row.ended = "not refused"
        else:
            row.ended = watch.goes_on() if drill.end == GOES_ON else watch.until(drill, undone)
        row.seconds = watch.seconds()
        row.ready_beside = watch.is_ready and not subject.works()
        if row.ended != drill.end:
            row.note = subject.why_not()
    except NO_ANSWER as error:
        row.ended, row.note = "error", f"{type(error).__name__}: {error}"[:600]
    finally:
        broken()
        mend(subject, drill, row)
    return row


def mend(subject, drill, row):
    """Repairs what a drill has left."""
    try:
        if drill.mends:
            drill.mends(subject)
    except NO_ANSWER as error:
        row.ended, row.note = "error", f"not mended: {error}"[:600]
    if not row.is_good:
        # The next one begins with a new one.
        subject.api.delete(subject.kind, subject.namespace, subject.name)
        time.sleep(REST_SECONDS)
        subject.restore()


def run_lane(lane, rows):
    for drill in lane.drills:
        if not drill.turn:
            rows.append(play(lane.subjects[drill.subject], drill))
            print(rows[-1].line(), flush=True)


def run_turn(stage, turn, rows):
    """Drills (subject, drill) that are broken together. Then the operator is started anew."""
    left = threading.Semaphore(0)

    def one(subject, drill):
        once = iter([left.release])
        row = play(subject, drill, lambda: next(once, lambda: None)())
        rows.append(row)
        print(row.line(), flush=True)

    threads = [threading.Thread(target=one, args=pair) for pair in turn]
    for thread in threads:
        thread.start()
    for _ in threads:
        left.acquire(timeout=2 * WHOLE_SECONDS)
    stage.stop_operator()
    for thread in threads:
        thread.join()


def run(stage, lanes):
    """All drills of these lanes; gives the rows."""
    for lane in lanes:
        lane.set_up(stage)
    rows = []
    threads = [threading.Thread(target=run_lane, args=(lane, rows)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    later = [(lane.subjects[drill.subject], drill) for lane in lanes for drill in lane.drills if drill.turn]
    for turn in sorted({drill.turn for _, drill in later}):
        run_turn(stage, [pair for pair in later if pair[1].turn == turn], rows)
    return rows


def drawn(drills, count, draw):
    """Some of them, in their order. What takes minutes is not among them."""
    quick = [drill for drill in drills if drill.seconds <= SECONDS and not drill.turn]
    chosen = draw.sample(quick, min(count, len(quick)))
    return [drill for drill in drills if drill in chosen]


def table(rows):
    """The rows as a table, and how many ended how."""
    lines = [row.line() for row in sorted(rows, key=lambda row: row.kind)]
    ends = [row.ended for row in rows]
    count = ", ".join(f"{ends.count(end)} {end}" for end in dict.fromkeys(ends))
    beside = sum(row.ready_beside and row.ended == TOLD for row in rows)
    head = ["| kind | what is broken | what the status says, after | how it ends |", "|---|---|---|---|"]
    return "\n".join([*head, *lines, "", f"{len(rows)} drills: {count}; {beside} told beside Ready=True"])
