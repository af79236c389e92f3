"""What outlives a request in this process: conversations, tasks, and calls that wait. Lost when the process ends."""

import asyncio
import collections
import contextlib
import hmac
import itertools
import time

from a2a.types.a2a_pb2 import Task

from . import history, limits

# Bytes that an entry takes besides its value.
ENTRY_BYTES = 1000


class Kept:
    """Values by their keys, the oldest first, and how many bytes they take."""

    _ages = itertools.count()

    def __init__(self):
        self._entries = collections.OrderedDict()
        self.bytes = 0

    def __len__(self):
        return len(self._entries)

    def __contains__(self, key):
        return key in self._entries

    def __iter__(self):
        return iter(self._entries)

    def put(self, key, value, size):
        """Keeps a value as the youngest."""
        self.pop(key)
        size += ENTRY_BYTES
        self._entries[key] = (next(self._ages), size, value)
        self.bytes += size

    def get(self, key):
        return self._entries[key][2] if key in self._entries else None

    def touch(self, key):
        """Makes it the youngest."""
        if key in self._entries:
            _, size, value = self._entries[key]
            self.put(key, value, size - ENTRY_BYTES)

    def age(self, key):
        """A number that is lower for what is older, over all that is kept."""
        return self._entries[key][0]

    def oldest(self, but=()):
        """The key of the oldest that is not in `but`; None if there is none."""
        return next((key for key in self._entries if key not in but), None)

    def pop(self, key):
        """Forgets it. Gives the value; None if there was none."""
        _, size, value = self._entries.pop(key, (0, 0, None))
        self.bytes -= size
        return value


class Local:
    """All of it in memory."""

    shared = False

    def __init__(self, settings, pending_seconds):
        self.settings = settings
        self._pending_seconds = pending_seconds
        self._sessions = Kept()
        self._tasks = Kept()
        self._pending = Kept()
        self._locks = {}

    async def close(self):
        """Nothing to close."""

    async def ping(self):
        """It is always there."""

    @contextlib.asynccontextmanager
    async def session(self, session, seconds):
        """Holds a session: those who ask for it wait, in order, at most `seconds`."""
        del seconds
        lock, holders = self._locks.setdefault(session, (asyncio.Lock(), []))
        holders.append(None)
        try:
            async with lock:
                yield
        finally:
            holders.pop()
            if not holders:
                self._locks.pop(session, None)

    def _make_room(self):
        """Lets go what is too much: the oldest of conversations and of tasks that ended; only then what waits."""
        while (first := self._pending.oldest()) is not None and self._pending.get(first)[0] < time.monotonic():
            self._pending.pop(first)
        while len(self._pending) > limits.MAX_PENDING:
            self._pending.pop(self._pending.oldest())
        while len(self._sessions) > self.settings.max_sessions:
            self._sessions.pop(self._sessions.oldest())
        while len(self._tasks) > limits.MAX_TASKS:
            self._tasks.pop(self._tasks.oldest(but=self._pending))
        while self._sessions.bytes + self._tasks.bytes + self._pending.bytes > limits.MAX_MEMORY_BYTES:
            task, session = self._tasks.oldest(but=self._pending), self._sessions.oldest()
            if task is None and session is None:
                waits = self._pending.oldest()
                self._pending.pop(waits)
                self._tasks.pop(waits)
            elif session is None or (task is not None and self._tasks.age(task) < self._sessions.age(session)):
                self._tasks.pop(task)
            else:
                self._sessions.pop(session)

    async def messages(self, session):
        self._sessions.touch(session)
        return list(self._sessions.get(session) or ())

    async def append(self, session, turn):
        messages = [*(self._sessions.get(session) or ()), *turn]
        kept = history.newest(messages, self.settings.max_session_events, limits.MAX_SESSION_BYTES)
        self._sessions.put(session, kept, history.size_of(kept))
        self._make_room()

    async def sessions(self):
        return list(self._sessions)

    async def has(self, session):
        return session in self._sessions

    async def forget(self, session):
        return self._sessions.pop(session) is not None

    async def save_task(self, task):
        # Its bytes take less room than its fields, and their number is known.
        content = task.SerializeToString()
        self._tasks.put(task.id, (task.context_id, content), len(content))
        self._make_room()

    async def task(self, task_id):
        context_and_content = self._tasks.get(task_id)
        return Task.FromString(context_and_content[1]) if context_and_content is not None else None

    async def task_ids(self, context):
        """The tasks of a context."""
        return [key for key in self._tasks if self._tasks.get(key)[0] == context]

    async def tasks(self, task_ids):
        """Those of the tasks that are there."""
        found = [await self.task(task_id) for task_id in task_ids]
        return [task for task in found if task is not None]

    async def wait_for(self, task_id, token, pending):
        """Keeps what waits for an answer, until it is taken or too old. Of too many the oldest gives way."""
        size = history.size_of(pending)
        if size > limits.MAX_PENDING_BYTES:
            raise limits.too_much_waits()
        self._pending.put(task_id, (time.monotonic() + self._pending_seconds, token, pending), size)
        self._make_room()

    async def waiting(self, task_id):
        """What waits; None if nothing does."""
        until, _, pending = self._pending.get(task_id) or (0, None, None)
        if until < time.monotonic():
            self._pending.pop(task_id)
            return None
        return pending

    async def take(self, task_id, token):
        """What waits, for the one who brings its token; it is gone for everybody else. None for a wrong token."""
        until, right, pending = self._pending.get(task_id) or (0, "", None)
        # Nothing is awaited in here: of two that race, one finds it.
        if until < time.monotonic() or not hmac.compare_digest(right.encode(), token.encode()):
            return None
        self._pending.pop(task_id)
        return pending

    async def ask_to_cancel(self, task_id):
        """No other process runs tasks."""
        return False

    async def asked_to_cancel(self, task_id):
        return False
