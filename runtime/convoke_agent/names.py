"""Names of tools, as the model sees them: what model APIs accept, and none twice."""

import collections
import hashlib
import re

MAX_CHARACTERS = 64
HASH_DIGITS = 8


def tool_name(text):
    """A name that model APIs accept."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", text)
    return name if len(name) <= MAX_CHARACTERS else _with_hash(name, text, HASH_DIGITS)


def _with_hash(name, text, digits):
    return f"{name[: MAX_CHARACTERS - digits - 1]}_{hashlib.sha256(text.encode()).hexdigest()[:digits]}"


def assigned(wanted, taken=()):
    """A name for each of `wanted`, which are (short, long) texts, no two alike; none of `taken`.

    It is the short one where nobody else wants that, else the long one, and where that is not free either, with a hash.
    """
    shorts = [tool_name(short) for short, _ in wanted]
    times = collections.Counter(shorts)
    names = [name if times[name] == 1 and name not in taken else None for name in shorts]
    taken = {*taken, *filter(None, names)}
    longs = [tool_name(long) for _, long in wanted]
    times = collections.Counter(long for long, name in zip(longs, names, strict=True) if name is None)
    for n, long in enumerate(longs):
        if names[n] is not None:
            continue
        if times[long] > 1 or long in taken:
            key = "\0".join(wanted[n])
            free = (_with_hash(long, key, digits) for digits in range(HASH_DIGITS, MAX_CHARACTERS - 1))
            long = next(name for name in free if name not in taken)
        names[n] = long
        taken.add(long)
    return names
