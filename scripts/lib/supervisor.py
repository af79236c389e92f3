"""What a supervisor of a cluster does besides: it alone owns its state folder, and signals end it in order.

Standard library only, Python 3.11 or newer, Linux.
"""

import fcntl
import os
import signal
import sys
import time


def own(state):
    """Makes the state folder and takes its lock, until this process ends."""
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    state.chmod(0o700)
    # A bare descriptor: only the kernel closes it, so that a free lock means that this process is gone.
    lock = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # Not at the first try: whoever asks whether a cluster runs takes the lock for a moment.
    for attempt in range(40):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if attempt == 39:
                sys.exit(f"a cluster already runs in {state}")
            time.sleep(0.05)
    os.truncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())


ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def quit_on_signals():
    """From now on the signals that ask for an end raise KeyboardInterrupt."""

    def quit_on(_signal, _frame):
        raise KeyboardInterrupt

    for number in ENDINGS:
        signal.signal(number, quit_on)


def ignore_signals():
    """From now on nothing but SIGKILL interrupts the way to the end."""
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)
