"""HTTP/1.1 of uvicorn, with bounds for those who connect and do not send a request, or do not take its answer."""

from uvicorn.protocols.http.h11_impl import H11Protocol

# The head of a request is complete by then: after connecting, or after its first byte. In between uvicorn has a deadline of its own.
HEAD_SECONDS = 20
# A client that reads nothing of a long answer is given up.
STALLED_SECONDS = 60
# With more connections, those that wait for a request make room, the oldest first.
MOST_CONNECTIONS = 1024
# With so many more, all of them with requests, new ones are closed. These are for the kubelet's probes: the gate takes fewer requests.
SPARE_CONNECTIONS = 64


class Protocol(H11Protocol):
    """One connection."""

    # Connections without a request, in the order in which they began to wait.
    waiting = {}

    def connection_made(self, transport):
        self.head_timer = self.write_timer = None
        super().connection_made(transport)
        self.make_room()
        self.waiting[self] = None
        self.head_timer = self.loop.call_later(HEAD_SECONDS, self.give_up)

    def make_room(self):
        if len(self.connections) <= MOST_CONNECTIONS:
            return
        oldest = next(iter(self.waiting), None)
        if oldest is not None:
            oldest.give_up()
        elif len(self.connections) > MOST_CONNECTIONS + SPARE_CONNECTIONS:
            self.give_up()

    def is_waiting(self):
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data):
        super().data_received(data)
        if not self.is_waiting():
            self.waiting.pop(self, None)
            self.head_timer = ended(self.head_timer)
        elif self.head_timer is None:
            # It trickles: what comes later moves no deadline.
            self.head_timer = self.loop.call_later(HEAD_SECONDS, self.give_up)

    def on_response_complete(self):
        self.waiting[self] = None
        super().on_response_complete()
        if not self.is_waiting():
            # The next request was there already.
            self.waiting.pop(self, None)

    def pause_writing(self):
        super().pause_writing()
        self.write_timer = self.write_timer or self.loop.call_later(STALLED_SECONDS, self.give_up)

    def resume_writing(self):
        super().resume_writing()
        self.write_timer = ended(self.write_timer)

    def connection_lost(self, exc):
        self.forget()
        super().connection_lost(exc)
        self.forget()

    def forget(self):
        self.waiting.pop(self, None)
        self.head_timer, self.write_timer = ended(self.head_timer), ended(self.write_timer)

    def give_up(self):
        self.forget()
        # Nothing is waited for, not even that what is written is taken.
        self.transport.abort()


def ended(timer):
    """Ends a timer that may be there; gives None."""
    if timer is not None:
        timer.cancel()
