"""Stands in for the interpreter where a test starts programs: has them forked at once.

A copy of this file, with the interpreter in its first line, is an executable file that
takes the words of `python`: `-m module ...`, `-c script ...` or a file. It asks the server
next to it (`tests.fork_server`) for the process, passes signals on to it, and ends as it
does. What the server cannot do, the interpreter does.
"""

import contextlib
import marshal
import os
import signal
import socket
import struct
import sys

_PASSED_ON = "SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT"


def main(words):
    first = words[1:2] if words[:1] == ["-P"] else words[:1]
    is_option = first and first[0].startswith("-") and first[0] not in ("-c", "-m")
    if not first or is_option or _has_more_descriptors():
        os.execv(sys.executable, [sys.executable, *words])
    pids, early, ignored = [], [], []

    def pass_on(number, frame):
        if not pids:
            early.append(number)
            return
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pids[0], number)

    for name in _PASSED_ON:
        number = getattr(signal, name)
        if signal.getsignal(number) is signal.SIG_IGN:
            ignored.append(int(number))
        else:
            signal.signal(number, pass_on)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.path.join(os.path.dirname(__file__), "socket"))
    send(
        connection,
        {
            "words": words,
            "python": __file__,
            "environment": dict(os.environ),
            "folder": os.getcwd(),
            "ignored": ignored,
        },
        (0, 1, 2),
    )
    pids.append(receive(connection))
    for number in early:
        pass_on(number, None)
    code = receive(connection)
    if code >= 0:
        sys.exit(code)
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


def _has_more_descriptors():
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing is closed
            if int(name) > 2 and os.get_inheritable(int(name)):
                return True
    return False


def send(connection, request, descriptors):
    """Ask the server for a process that has these standard descriptors."""
    content = marshal.dumps(request)
    socket.send_fds(connection, [struct.pack("q", len(content))], descriptors)
    connection.sendall(content)


def receive(connection):
    """Read a number that the server tells."""
    content = connection.recv(struct.calcsize("i"), socket.MSG_WAITALL)
    if not content:
        raise EOFError("The server that forks processes is gone.")
    return struct.unpack("i", content)[0]


if __name__ == "__main__":
    main(sys.argv[1:])
