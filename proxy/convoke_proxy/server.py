"""HTTP/1.1 of uvicorn, with bounds for those who connect and do not send a request, or do not take its answer."""

from uvicorn.protocols.http.h11_impl import H11Protocol

# The head of a request is complete by then: after connecting, or after its first byte. In between uvicorn has a deadline of its own.
HEAD_SECONDS = 20
# A client is given up that leaves bytes of an answer, and takes less than so many of them in so long.
STALLED_SECONDS = 60
LEAST_TAKEN = 1 << 20
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
        # The answer is written, and the client has not taken all of it yet.
        self.is_left = False
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
        self.tell_what_is_left()
        if self.flow.write_paused:
            # Short answers would fill the buffer otherwise, until one of them has to wait and is a request that does not end.
            self.is_left = True
            self.flow.pause_reading()
        else:
            self.go_on()

    def go_on(self):
        """The answer is gone: the next request may come."""
        self.transport.set_write_buffer_limits()
        super().on_response_complete()
        if not self.is_waiting():
            # It was there already.
            self.waiting.pop(self, None)

    def send_400_response(self, msg):
        super().send_400_response(msg)
        self.tell_what_is_left()

    def tell_what_is_left(self):
        """Has writing paused while a single byte is not taken."""
        self.transport.set_write_buffer_limits(0)

    def pause_writing(self):
        super().pause_writing()
        if self.write_timer is None:
            self.watch_writing()

    def watch_writing(self):
        # Nothing is added while writing is paused.
        left = self.transport.get_write_buffer_size()
        self.write_timer = self.loop.call_later(STALLED_SECONDS, self.look_at_writing, left)

    def look_at_writing(self, before):
        if before - self.transport.get_write_buffer_size() < LEAST_TAKEN:
            self.give_up()
        else:
            self.watch_writing()

    def resume_writing(self):
        super().resume_writing()
        self.write_timer = ended(self.write_timer)
        if self.is_left:
            self.is_left = False
            self.go_on()

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
