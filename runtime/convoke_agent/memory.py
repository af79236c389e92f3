"""What outlives a request in this process: conversations, tasks, and calls that wait. Lost when the process ends."""

import asyncio
import collections
import contextlib
import hmac
import time

from . import history, limits


class Local:
    """All of it in memory."""

    shared = False

    def __init__(self, settings, pending_seconds):
        self.settings = settings
        self._pending_seconds = pending_seconds
        self._sessions = collections.OrderedDict()
        self._tasks = collections.OrderedDict()
        self._pending = collections.OrderedDict()
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

    async def messages(self, session):
        if session in self._sessions:
            self._sessions.move_to_end(session)
        return list(self._sessions.get(session, ()))

    async def append(self, session, turn):
        kept = history.newest([*self._sessions.get(session, ()), *turn], self.settings.max_session_events)
        self._sessions[session] = kept
        self._sessions.move_to_end(session)
        while len(self._sessions) > self.settings.max_sessions:
            self._sessions.popitem(last=False)

    async def sessions(self):
        return list(self._sessions)

    async def has(self, session):
        return session in self._sessions

    async def forget(self, session):
        return self._sessions.pop(session, None) is not None

    async def save_task(self, task):
        self._tasks[task.id] = task
        self._tasks.move_to_end(task.id)
        while len(self._tasks) > limits.MAX_TASKS:
            self._tasks.popitem(last=False)

    async def task(self, task_id):
        return self._tasks.get(task_id)

    async def tasks(self):
        return list(self._tasks.values())

    async def wait_for(self, task_id, token, pending):
        """Keeps what waits for an answer, until it is taken or too old. Of too many the oldest gives way."""
        self._pending[task_id] = (time.monotonic() + self._pending_seconds, token, pending)
        self._pending.move_to_end(task_id)
        while len(self._pending) > limits.MAX_PENDING:
            self._pending.popitem(last=False)

    async def waiting(self, task_id):
        """What waits; None if nothing does."""
        until, _, pending = self._pending.get(task_id, (0, None, None))
        if until < time.monotonic():
            self._pending.pop(task_id, None)
            return None
        return pending

    async def take(self, task_id, token):
        """What waits, for the one who brings its token; it is gone for everybody else. None for a wrong token."""
        until, right, pending = self._pending.get(task_id, (0, "", None))
        # Nothing is awaited in here: of two that race, one finds it.
        if until < time.monotonic() or not hmac.compare_digest(right.encode(), token.encode()):
            return None
        del self._pending[task_id]
        return pending

    async def drop(self, task_id):
        """Nothing waits any more."""
        self._pending.pop(task_id, None)

    async def ask_to_cancel(self, task_id):
        """No other process runs tasks."""
        return False

    async def asked_to_cancel(self, task_id):
        return False
