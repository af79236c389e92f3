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


class Live:
    """One task that runs here."""

    def __init__(self, task):
        self.task = task
        self.ended = asyncio.Event()
        self.job = None
        # Whether the job ran its first step.
        self.begun = False
        self._final = None
        self._followers = set()
        self._streamed = False

    def cancel(self):
        """Ends the work, unless its end is decided."""
        if self._final is None:
            self.job.cancel()

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
        """Tells how it ended, and that nothing more comes."""
        if self._final is not None:
            self._set(self._final)
        self.ended.set()
        for queue in self._followers:
            queue.put_nowait(None)
        self._followers.clear()

    def works(self):
        """The work begins."""
        self._set(self._status(TaskState.TASK_STATE_WORKING))

    def conclude(self, state, parts=()):
        """Decides how it ends, with what the agent says about it. The first decision counts; `end` tells it."""
        if self._final is None:
            self._final = self._status(state, parts)

    def concluded(self):
        """The task as it will be once its end is told."""
        task = Task()
        task.CopyFrom(self.task)
        if self._final is not None:
            task.status.CopyFrom(self._final)
        return task

    def lose(self, failure):
        """It fails, whatever was decided: its end could not be kept."""
        self._final = None
        self.fail(failure)

    def _status(self, state, parts=()):
        status = TaskStatus(state=state)
        status.timestamp.GetCurrentTime()
        if parts:
            status.message.CopyFrom(self._message(parts))
        return status

    def _set(self, status):
        self.task.status.CopyFrom(status)
        event = self._update()
        if self.task.HasField("metadata"):
            event.metadata.CopyFrom(self.task.metadata)
        self._publish(event)

    def _update(self):
        """An event that tells the state as it is."""
        return TaskStatusUpdateEvent(
            task_id=self.task.id, context_id=self.task.context_id, status=self.task.status
        )

    def call(self, call):
        """Tells followers of a call of a tool or a peer, in the metadata: it is no part of the answer."""
        if self._followers:
            event = self._update()
            event.metadata.update({"event": call})
            self._publish(event)

    def usage(self, run):
        """Notes what the task took so far."""
        usage = run.usage
        if usage.requests:
            tokens = {"inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens}
            self.task.metadata.update({"usage": tokens | {"steps": usage.requests}})

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
        self.task.history.append(self._message([text_part(limits.shortened(text))]))
        self.conclude(TaskState.TASK_STATE_COMPLETED)

    def fail(self, failure):
        error = {"error": {"reason": failure.reason, "message": failure.message}}
        self.conclude(TaskState.TASK_STATE_FAILED, [text_part(failure.message), data_part(error)])


def new(message):
    """A task for a message that names none."""
    task = Task(id=str(uuid.uuid4()), context_id=message.context_id or str(uuid.uuid4()))
    task.status.state = TaskState.TASK_STATE_SUBMITTED
    task.status.timestamp.GetCurrentTime()
    return with_message(task, message)


def with_message(task, message):
    """The task with a message of its asker in its history, after what the agent said last."""
    if task.status.HasField("message"):
        task.history.append(_kept(task.status.message))
        task.status.ClearField("message")
    task.history.append(_kept(message))
    task.history[-1].task_id, task.history[-1].context_id = task.id, task.context_id
    return task


def _kept(message):
    """The message as a history keeps it: whole, or its text alone and cut."""
    if message.ByteSize() <= limits.MAX_KEPT_MESSAGE_BYTES:
        return message
    text = "\n".join(part.text for part in message.parts if part.HasField("text"))
    kept = Message(role=message.role, message_id=message.message_id)
    kept.parts.append(text_part(limits.shortened(text, limits.MAX_KEPT_MESSAGE_BYTES)))
    return kept


def goes_on(task, message):
    """The task with a message that ends its wait."""
    with_message(task, message)
    task.status.state = TaskState.TASK_STATE_WORKING
    task.status.timestamp.GetCurrentTime()
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


def without_tokens(task):
    """Takes the tokens of approvals out of a task: a list is for more than those who were asked."""
    for message in (task.status.message, *task.history):
        for part in message.parts:
            data = part.data.struct_value.fields
            approval = data["approval"].struct_value.fields if "approval" in data else {}
            if "token" in approval:
                del approval["token"]


def token():
    return secrets.token_urlsafe(32)
