"""HTTP/1.1 of uvicorn, with a deadline for those who connect and then say nothing."""

from uvicorn.protocols.http.h11_impl import H11Protocol

FIRST_REQUEST_SECONDS = 20


class Protocol(H11Protocol):
    """One connection. Between requests uvicorn has a deadline of its own."""

    def connection_made(self, transport):
        super().connection_made(transport)
        self.loop.call_later(FIRST_REQUEST_SECONDS, self.give_up)

    def give_up(self):
        # There is a cycle as soon as the head of a request was read.
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()
