"""What outlives a request, in Redis, for all replicas of an agent."""

import asyncio
import contextlib
import hashlib
import json
import secrets
import time

import redis.asyncio as redis
from a2a.types.a2a_pb2 import Task
from google.protobuf.json_format import MessageToJson, Parse, ParseError
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from . import history, limits, logs
from .errors import Failure

SESSION_SECONDS = 7 * 24 * 3600
TASK_SECONDS = 24 * 3600
CANCEL_SECONDS = 600
COMMAND_SECONDS = 5
LOCK_SECONDS = 30
PROBE_SECONDS = 60
POLL_SECONDS = 0.05
MOST_CONNECTIONS = 200
# Deletes what the caller still holds.
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"
RENEW = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"
# Gives the value to the one who brings the token, and to nobody after.
TAKE = """
if redis.call('hget', KEYS[1], 'token') ~= ARGV[1] then return false end
local value = redis.call('hget', KEYS[1], 'value')
redis.call('del', KEYS[1])
redis.call('zrem', KEYS[2], ARGV[2])
return value
"""


def _unavailable(method):
    """Redis that is away is the asker's to know, as a Failure."""

    async def wrapped(*args, **kwargs):
        try:
            return await method(*args, **kwargs)
        except (RedisError, OSError, asyncio.TimeoutError):
            raise Failure("memory_unavailable", "the agent's memory cannot be reached; try again later") from None

    return wrapped


class Shared:
    """Like memory.Local, for several processes at once."""

    shared = True

    def __init__(self, settings, pending_seconds, url, agent):
        self.settings = settings
        self._pending_seconds = pending_seconds
        self._prefix = f"convoke:{agent}:"
        options = {
            "socket_timeout": COMMAND_SECONDS,
            "socket_connect_timeout": COMMAND_SECONDS,
            "retry": Retry(NoBackoff(), 1),
            "health_check_interval": 30,
        }
        # Who finds all connections in use waits for one.
        pool = redis.BlockingConnectionPool.from_url(
            url, max_connections=MOST_CONNECTIONS, timeout=COMMAND_SECONDS, **options
        )
        self._redis = redis.Redis.from_pool(pool)
        # Whether Redis is there is not asked behind others.
        self._probe = redis.from_url(url, **options)

    def _key(self, kind, name=""):
        # An identifier of an asker may be anything: only its hash becomes a key.
        return f"{self._prefix}{kind}" + (f":{hashlib.sha256(name.encode()).hexdigest()}" if name else "")

    async def close(self):
        await self._redis.aclose()
        await self._probe.aclose()

    @_unavailable
    async def ping(self):
        """Raises Failure unless Redis takes a write: a replica of it, or a full one, only answers."""
        await self._probe.set(self._key("probe"), "1", ex=PROBE_SECONDS)

    @contextlib.asynccontextmanager
    async def session(self, session, seconds):
        """Holds a session over all replicas, at most `seconds` after asking."""
        key, mine = self._key("lock", session), secrets.token_hex(16)
        renewal = None
        try:
            await self._acquire(key, mine, time.monotonic() + seconds)
            renewal = asyncio.create_task(self._renew(key, mine))
            yield
        finally:
            if renewal is not None:
                renewal.cancel()
            # It ends by itself if Redis is away. Who is cancelled while asking may hold it.
            with contextlib.suppress(RedisError, OSError):
                await self._redis.eval(RELEASE, 1, key, mine)

    @_unavailable
    async def _acquire(self, key, mine, until):
        while not await self._redis.set(key, mine, nx=True, px=LOCK_SECONDS * 1000):
            if time.monotonic() > until:
                raise Failure("seconds_exceeded", "another request of the session takes too long")
            await asyncio.sleep(POLL_SECONDS)

    async def _renew(self, key, mine):
        while True:
            await asyncio.sleep(LOCK_SECONDS / 3)
            with contextlib.suppress(RedisError, OSError):
                await self._redis.eval(RENEW, 1, key, mine, LOCK_SECONDS * 1000)

    @_unavailable
    async def messages(self, session):
        value = await self._redis.get(self._key("session", session))
        return (_readable(_messages_of, value) or []) if value else []

    @_unavailable
    async def append(self, session, turn):
        """Only for who holds the session."""
        messages = [*await self.messages(session), *turn]
        kept = history.newest(messages, self.settings.max_session_events, limits.MAX_SESSION_BYTES)
        value = json.dumps({"id": session, "messages": history.dumped(kept)})
        index, now = self._key("sessions"), time.time()
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.set(self._key("session", session), value, ex=SESSION_SECONDS)
            pipeline.zadd(index, {session: now})
            pipeline.zremrangebyscore(index, 0, now - SESSION_SECONDS)
            await pipeline.execute()
        await self._shrink("sessions", "session", self.settings.max_sessions)

    async def _shrink(self, index, kind, most):
        """Drops what is too much of an index. What was saved stays saved where that fails; the next one tries again."""
        try:
            await self._drop_oldest(index, kind, most)
        except (RedisError, OSError, asyncio.TimeoutError):
            logs.warn("the oldest entries were not dropped", index=index)

    async def _drop_oldest(self, index, kind, most):
        """Drops the oldest of an index that has more than `most`; tasks that wait stay."""
        over = await self._redis.zcard(self._key(index)) - most
        if over <= 0:
            return
        if kind == "task":
            old = await self._redis.zrange(self._key(index), 0, over + limits.MAX_PENDING - 1)
            # Not ZMSCORE: Redis has it from 6.2 on only.
            async with self._redis.pipeline(transaction=False) as pipeline:
                for name in old:
                    pipeline.zscore(self._key("waiting"), name)
                since = await pipeline.execute()
            waits = time.time() - self._pending_seconds
            old = [name for name, score in zip(old, since, strict=True) if score is None or score < waits][:over]
        else:
            old = await self._redis.zrange(self._key(index), 0, over - 1)
        if old:
            await self._redis.delete(*(self._key(kind, name.decode()) for name in old))
            await self._redis.zrem(self._key(index), *old)

    @_unavailable
    async def sessions(self):
        return [name.decode() for name in await self._redis.zrange(self._key("sessions"), 0, -1)]

    @_unavailable
    async def has(self, session):
        return bool(await self._redis.exists(self._key("session", session)))

    @_unavailable
    async def forget(self, session):
        await self._redis.zrem(self._key("sessions"), session)
        return bool(await self._redis.delete(self._key("session", session)))

    @_unavailable
    async def save_task(self, task):
        value = MessageToJson(task, indent=None)
        context, now = self._key("context", task.context_id), time.time()
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.set(self._key("task", task.id), value, ex=TASK_SECONDS)
            pipeline.zadd(self._key("tasks"), {task.id: now})
            pipeline.zadd(context, {task.id: now})
            pipeline.zremrangebyrank(context, 0, -limits.MAX_TASKS - 1)
            pipeline.expire(context, TASK_SECONDS)
            await pipeline.execute()
        await self._shrink("tasks", "task", limits.MAX_TASKS)

    @_unavailable
    async def task(self, task_id):
        value = await self._redis.get(self._key("task", task_id))
        return _readable(_task_of, value) if value else None

    @_unavailable
    async def task_ids(self, context):
        return [name.decode() for name in await self._redis.zrange(self._key("context", context), 0, -1)]

    @_unavailable
    async def tasks(self, task_ids):
        values = await self._redis.mget([self._key("task", one) for one in task_ids])
        tasks = [_readable(_task_of, value) for value in values if value]
        return [task for task in tasks if task is not None]

    @_unavailable
    async def wait_for(self, task_id, token, pending):
        value = json.dumps(pending | {"messages": history.dumped(pending["messages"])})
        if len(value) > limits.MAX_PENDING_BYTES:
            raise limits.too_much_waits()
        key, now = self._key("pending", task_id), time.time()
        async with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.delete(key)
            pipeline.hset(key, mapping={"token": _hash(token), "value": value})
            pipeline.pexpire(key, int(self._pending_seconds * 1000))
            pipeline.zadd(self._key("waiting"), {task_id: now})
            pipeline.zremrangebyscore(self._key("waiting"), 0, now - self._pending_seconds)
            await pipeline.execute()
        await self._shrink("waiting", "pending", limits.MAX_PENDING)

    @_unavailable
    async def waiting(self, task_id):
        return _pending_of(await self._redis.hget(self._key("pending", task_id), "value"))

    @_unavailable
    async def take(self, task_id, token):
        keys = (self._key("pending", task_id), self._key("waiting"))
        return _pending_of(await self._redis.eval(TAKE, 2, *keys, _hash(token), task_id))

    @_unavailable
    async def ask_to_cancel(self, task_id):
        """Leaves word for the replica that runs the task."""
        await self._redis.set(self._key("cancel", task_id), "1", ex=CANCEL_SECONDS)
        return True

    @_unavailable
    async def asked_to_cancel(self, task_id):
        return bool(await self._redis.exists(self._key("cancel", task_id)))


def _readable(read, value):
    """What is read of a value; None, with a warning, for one that another version or somebody else wrote."""
    try:
        return read(value)
    except (ValueError, KeyError, TypeError, RecursionError, ParseError) as error:
        logs.warn("what Redis keeps cannot be read, and is left out", error=type(error).__name__)
        return None


def _messages_of(value):
    return history.loaded(json.loads(value)["messages"])


def _pending(value):
    pending = json.loads(value)
    return pending | {"messages": history.loaded(pending["messages"])}


def _pending_of(value):
    return _readable(_pending, value) if value else None


def _task_of(value):
    task = Parse(value, Task(), ignore_unknown_fields=True)
    if not task.id:
        raise ValueError
    return task


def _hash(token):
    return hashlib.sha256(token.encode()).hexdigest()
