"""A2A tasks while they run: their state and who follows them."""

import asyncio
import secrets
import uuid

from a2a.types.a2a_pb2 import (
    Artifact,
    Message,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

from . import limits, peers
from .peers import data_part, text_part

# A follower that reads so slowly is left behind.
MAX_EVENTS_BEHIND = 10_000
ANSWER = "answer"
ENDED = (*peers.TERMINAL, *peers.INTERRUPTED)


class Live:
    """One task that runs here."""

    def __init__(self, task):
        self.task = task
        self.ended = asyncio.Event()
        self.job = None
        self._followers = set()
        self._streamed = False

    def follow(self):
        """A queue of what happens from now on; None is its end."""
        queue = asyncio.Queue(MAX_EVENTS_BEHIND + 1)
        if self.ended.is_set():
            queue.put_nowait(None)
        else:
            self._followers.add(queue)
        return queue

    def unfollow(self, queue):
        self._followers.discard(queue)

    def _publish(self, event):
        for queue in list(self._followers):
            if queue.qsize() >= MAX_EVENTS_BEHIND:
                self._followers.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    def end(self):
        self.ended.set()
        for queue in self._followers:
            queue.put_nowait(None)
        self._followers.clear()

    def set(self, state, parts=()):
        """Another state, with what the agent says about it."""
        status = TaskStatus(state=state)
        status.timestamp.GetCurrentTime()
        if parts:
            status.message.CopyFrom(self._message(parts))
        self.task.status.CopyFrom(status)
        self._publish(TaskStatusUpdateEvent(task_id=self.task.id, context_id=self.task.context_id, status=status))

    def _message(self, parts):
        return Message(
            role=Role.ROLE_AGENT,
            message_id=str(uuid.uuid4()),
            parts=parts,
            task_id=self.task.id,
            context_id=self.task.context_id,
        )

    def _artifact(self, text, append, last):
        artifact = Artifact(artifact_id=ANSWER, name=ANSWER, parts=[text_part(text)])
        event = TaskArtifactUpdateEvent(task_id=self.task.id, context_id=self.task.context_id, artifact=artifact)
        event.append, event.last_chunk = append, last
        self._publish(event)
        return artifact

    async def text(self, text, first):
        """A piece of the answer. The `first` piece of a step replaces what the step before said."""
        self._artifact(text, self._streamed and not first, False)
        self._streamed = True

    def answer(self, text):
        """The whole answer; followers who had it in pieces are only told that it is whole."""
        if self._streamed:
            self._artifact("", True, True)
        else:
            self._artifact(text, False, True)
        del self.task.artifacts[:]
        self.task.artifacts.append(Artifact(artifact_id=ANSWER, name=ANSWER, parts=[text_part(text)]))
        self.task.history.append(self._message([text_part(text)]))
        self.set(TaskState.TASK_STATE_COMPLETED)

    def fail(self, failure):
        error = {"error": {"reason": failure.reason, "message": failure.message}}
        self.set(TaskState.TASK_STATE_FAILED, [text_part(failure.message), data_part(error)])


def new(message):
    """A task for a message that names none."""
    task = Task(id=str(uuid.uuid4()), context_id=message.context_id or str(uuid.uuid4()))
    task.status.state = TaskState.TASK_STATE_SUBMITTED
    task.status.timestamp.GetCurrentTime()
    return with_message(task, message)


def with_message(task, message):
    """The task with a message of its asker in its history, after what the agent said last."""
    if task.status.HasField("message"):
        task.history.append(task.status.message)
        task.status.ClearField("message")
    task.history.append(message)
    task.history[-1].task_id, task.history[-1].context_id = task.id, task.context_id
    return task


def ask(item, token):
    """The parts of a message that ask for what a call waits for."""
    if item["kind"] == "peer" and item["approval"] is None:
        return [text_part(item["question"] or f"The agent {item['peer']} asks for input.")]
    shown = item if item["kind"] == "tool" else item["approval"]
    approval = {"token": token} | {key: shown[key] for key in ("server", "tool", "arguments") if key in shown}
    who = f"the agent {item['peer']}" if item["kind"] == "peer" else "the agent"
    text = limits.shortened(f"May {who} call {approval.get('tool')} of {approval.get('server')}?", 1000)
    if item["kind"] == "peer":
        approval["agent"] = item["peer"]
    return [text_part(text), data_part({"approval": approval})]


def token():
    return secrets.token_urlsafe(32)
