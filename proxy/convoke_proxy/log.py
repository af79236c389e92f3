"""What may be written after the start: lines of this program, and where LiteLLM had an error. Never an error's text.

Texts of errors come from providers, and may repeat a prompt or a key.
"""

import logging
import sys
import time


class Log:
    """Writes lines to what was the error output at the start."""

    def __init__(self, stream):
        self.stream = stream
        self.quiet = False

    def said(self, text):
        """Writes a line of this program."""
        line = "".join(character if character.isprintable() else " " for character in text)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        print(f"{stamp} {line}", file=self.stream, flush=True)

    def begin_quiet(self):
        """From now on, nothing of what others write is shown but what `Handler` makes of it."""
        self.quiet = True
        sys.stdout = sys.stderr = Nothing()
        logging.raiseExceptions = False


class Nothing:
    """A stream that keeps nothing."""

    encoding = "utf-8"

    def write(self, text):
        return len(text)

    def flush(self):
        pass

    def isatty(self):
        return False


class Handler(logging.Handler):
    """Shows records: whole ones while it starts, then only where they come from and an error's class."""

    def __init__(self, log):
        super().__init__()
        self.log = log

    def emit(self, record):
        if not self.log.quiet:
            self.log.said(f"{record.levelname} {record.name}: {record.getMessage()}")
            return
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        self.log.said(f"{record.levelname} {record.name} {record.filename}:{record.lineno} {kind}".rstrip())


def install(log, level=logging.ERROR):
    """Lets all loggers write by the handler, and by no other."""
    for logger in [logging.root, *(logging.getLogger(name) for name in list(logging.root.manager.loggerDict))]:
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
        logger.propagate = True
        logger.setLevel(logging.NOTSET)
    logging.root.setLevel(level)
    logging.root.addHandler(Handler(log))
