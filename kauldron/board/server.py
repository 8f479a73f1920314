"""The server of `kauldron board`: the page, and JSON for it. It only ever reads."""

from __future__ import annotations

import errno
import json
import math
import os
import pathlib
import socket
from collections.abc import Callable
from typing import Any

from kauldron.board.contents import Contents
from kauldron.errors import ReadableKeyError

PAGE = pathlib.Path(__file__).parent / "page"
SCRIPTS = ("charts.js", "curves.js", "tables.js", "media.js", "board.js")
_ASSETS = {"board.css": "text/css"} | dict.fromkeys(SCRIPTS, "text/javascript")
_LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")
_HEADERS = {
    # Nothing that a run wrote can load or run anything.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' "
    "'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def make_app(contents: Contents, *, hosts: tuple[str, ...] = _LOOPBACK) -> Any:
    """Return the Starlette application of a board.

    Args:
      contents: What to show.
      hosts: The names that a browser may use for this server: a page of another site
        that points its own name here is turned away. `("*",)` allows all.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.gzip import GZipMiddleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.responses import FileResponse, Response
    from starlette.routing import Route

    def respond(body: bytes | str, media_type: str, status: int = 200) -> Response:
        return Response(body, status, headers=_HEADERS, media_type=media_type)

    def as_json(data: Any, status: int = 200) -> Response:
        return respond(json.dumps(data, default=str), "application/json", status)

    def answer(read: Callable[..., Any]) -> Callable[[Any], Response]:
        # Not async: Starlette calls it in a thread, so that reading blocks nobody.
        def endpoint(request: Any) -> Response:
            try:
                result = read(request.query_params)
            except (LookupError, ValueError, OSError) as error:
                return as_json({"error": _message(error)}, 404)
            return result if isinstance(result, Response) else as_json(result)

        return endpoint

    def index(request: Any) -> Response:
        del request
        return respond((PAGE / "index.html").read_text(), "text/html")

    def asset(request: Any) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            return respond("There is no such file.", "text/plain", 404)
        return respond((PAGE / name).read_text(), _ASSETS[name])

    def item(query: Any, kind: str) -> Any:
        return contents.item(query["run"], kind, query["tag"], int(query["step"]))

    def image(query: Any) -> Response:
        data = item(query, "image")
        return respond(data, _image_type(data))

    def trace(query: Any) -> Response:
        path = contents.file(query["run"], "traces", query["name"])
        return FileResponse(path, filename=path.name, headers=_HEADERS)

    answers: dict[str, Callable[..., Any]] = {
        "runs": lambda query: contents.runs(),
        "best": lambda query: contents.best(),
        "curves": lambda query: contents.curves(
            query["metric"],
            by="time" if query.get("by") == "time" else "step",
            first=_number(query, "first", -math.inf),
            last=_number(query, "last", math.inf),
        ),
        "config": lambda query: contents.config(query["run"]),
        "media": lambda query: contents.media(query["run"]),
        "image": image,
        "text": lambda query: item(query, "text"),
        "histograms": lambda query: contents.histograms(query["run"], query["tag"]),
        "files": lambda query: contents.files(query["run"]),
        "log": lambda query: contents.log(query["run"], query["name"]),
        "trace": trace,
    }
    return Starlette(
        routes=[
            Route("/", index),
            Route("/page/{name}", asset),
            *(Route(f"/api/{name}", answer(read)) for name, read in answers.items()),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts)),
            Middleware(GZipMiddleware, minimum_size=4096, compresslevel=1),
        ],
    )


def serve(
    folder: str | os.PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int = 6007,
    ready: Callable[[str], None] = print,
) -> None:
    """Serve the board of a folder until Ctrl-C.

    Args:
      folder: A workdir, or a folder of workdirs and experiments.
      host: The address to listen on. Whoever can reach it can read the runs.
      port: The port; if another program has it, the next one that is free. 0 for any.
      ready: Called with the address of the page once browsers can connect.
    """
    import uvicorn

    hosts = _LOOPBACK if host in _LOOPBACK else ("*",)
    listener = _listen(host, port)
    address = f"[{host}]" if ":" in host else host
    app = make_app(Contents(folder), hosts=hosts)
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    ready(f"http://{address}:{listener.getsockname()[1]}")
    server.run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens already: a browser that connects now only waits."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last = port if port == 0 else port + 19
    for tried in range(port, last + 1):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, tried))
            listener.listen(128)
            break
        except OSError as error:
            listener.close()
            if tried == last or error.errno != errno.EADDRINUSE:
                raise OSError(f"Cannot listen on {host}:{tried}: {error}") from error
    return listener  # pyright: ignore[reportPossiblyUnboundVariable]


def _number(query: Any, name: str, default: float) -> float:
    return float(query[name]) if name in query else default


def _message(error: Exception) -> str:
    if isinstance(error, KeyError) and not isinstance(error, ReadableKeyError):
        return f"Nothing is called {error}."
    return str(error)


def _image_type(data: bytes) -> str:
    kinds = {b"\x89PNG": "image/png", b"\xff\xd8": "image/jpeg", b"GIF8": "image/gif"}
    matching = (kind for start, kind in kinds.items() if data.startswith(start))
    return next(matching, "application/octet-stream")
