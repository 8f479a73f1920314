"""Everything that is wrong with a config, gathered."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kauldron import konfig, path_grammar
from kauldron.cli.error_descriptions import message_with_notes
from kauldron.konfig.text_listing import describe_origin


class Problems:
    """Collects what is raised, each under the path of the config it is about."""

    def __init__(self, cfg: konfig.ConfigDict):
        self._cfg = cfg
        self.messages: list[str] = []

    @contextlib.contextmanager
    def at(self, path: str) -> Iterator[None]:
        """What is raised inside is a problem of `cfg.<path>`."""
        try:
            yield
        except Exception as error:
            self.add(path, message_with_notes(error))

    def add(self, path: str, message: str) -> None:
        """Something is wrong with `cfg.<path>`."""
        self.messages.append(f"cfg.{path}: {message}{self._place(path)}")

    def _place(self, path: str) -> str:
        """Where it was set, and by which flags it was changed."""
        try:
            node = konfig.get_by_path(self._cfg, path)
        except KeyError:  # a default of the trainer
            return ""
        events = [*konfig.history(self._cfg, path)[-1:]]
        parts = path_grammar.parse(path)
        for name in node if isinstance(node, konfig.ConfigDict) else ():
            below = path_grammar.format_path((*parts, name))
            last = konfig.history(self._cfg, below)[-1:]
            events += [event for event in last if event.kind == "cli"]
        return "".join(f"\n  {describe_origin(event)}" for event in events)
