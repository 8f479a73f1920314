"""What a program writes to a terminal, for tests that give it one."""

import os


def read_all(descriptor: int) -> str:
    """Everything that is written to the other side of a terminal, until it closes."""
    pieces = []
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # how Linux tells that the other side is closed
            piece = b""
        if not piece:
            os.close(descriptor)
            return b"".join(pieces).decode()
        pieces.append(piece)
