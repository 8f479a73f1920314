"""The number that stands for a string when it is folded into a key."""

import functools
import hashlib


@functools.lru_cache(maxsize=4096)
def hash_to_uint32(text: str) -> int:
    """First four bytes of the SHA-1 of the UTF-8 text, as a big-endian number.

    All random streams and data orders derive from this number, so it never changes:
    not between processes, Python versions or releases of this library.

    >>> hash_to_uint32("param")
    3741738263
    """
    digest = hashlib.sha1(text.encode("utf-8"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
