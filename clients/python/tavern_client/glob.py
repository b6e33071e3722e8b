"""Redis glob patterns over bytes. Needed because a message names its channel, not the pattern that matched.

Must hold: the same result as the server for every pattern and name; no exponential time.
"""
from __future__ import annotations


def matches(pattern: str, name: str) -> bool:
    glob, text = pattern.encode(), name.encode()
    p = t = 0
    # Position of the last star and how much it has consumed: backtracking only ever extends the last star.
    star: int | None = None
    reached = 0
    while t < len(text):
        if p < len(glob) and glob[p] == ord("*"):
            star, reached = p, t
            p += 1
            continue
        after = one(glob, p, text[t])
        if after is not None:
            p, t = after, t + 1
        elif star is not None:
            reached += 1
            p, t = star + 1, reached
        else:
            return False
    return all(byte == ord("*") for byte in glob[p:])


def one(glob: bytes, p: int, byte: int) -> int | None:
    """The position after the element at `p` if it matches this byte."""
    if p >= len(glob):
        return None
    if glob[p] == ord("?"):
        return p + 1
    if glob[p] == ord("["):
        return one_of(glob, p + 1, byte)
    if glob[p] == ord("\\") and p + 1 < len(glob):
        p += 1
    return p + 1 if glob[p] == byte else None


def one_of(glob: bytes, p: int, byte: int) -> int | None:
    inverted = glob[p : p + 1] == b"^"
    p += inverted
    found = False
    # An unclosed class ends with the pattern, as in Redis.
    while p < len(glob) and glob[p] != ord("]"):
        if glob[p] == ord("\\") and p + 1 < len(glob):
            p += 1
            found |= glob[p] == byte
            p += 1
        elif glob[p + 1 : p + 2] == b"-" and p + 2 < len(glob):
            low, high = sorted((glob[p], glob[p + 2]))
            found |= low <= byte <= high
            p += 3
        else:
            found |= glob[p] == byte
            p += 1
    end = min(p + 1, len(glob))
    return end if found != inverted else None
