"""Everything that is wrong with a config, gathered."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kauldron import konfig, path_grammar
from kauldron.cli.error_descriptions import users_line
from kauldron.konfig.text_listing import describe_origin

if TYPE_CHECKING:
    from kauldron.train import Trainer


class Problems:
    """Collects what is wrong, each under the path of the config it is about.

    Attributes:
      messages: What stops a run.
      warnings: What it only warns about.
      cause: The first exception by which a problem was found.
    """

    def __init__(self, cfg: konfig.ConfigDict):
        self._cfg = cfg
        self.messages: list[str] = []
        self.warnings: list[str] = []
        self.cause: Exception | None = None

    def add(self, path: str, message: str) -> None:
        """Something is wrong with `cfg.<path>`."""
        self.messages.append(f"cfg.{path}: {message}{self._place(path)}")

    def add_all_of(self, trainer: Trainer, *, left_out: Collection[str] = ()) -> None:
        """Add what is wrong with the trainer that was built.

        Args:
          trainer: What was built of the config.
          left_out: Paths of what could not be built: that it is missing is no news.
        """
        from kauldron.train import problems

        for problem in problems.find_all(trainer):
            if _is_about(problem.path, left_out):
                continue
            line = users_line(problem.error) if problem.error else ""
            message = f"{problem.message}{line}"
            self.cause = self.cause or problem.error
            if problem.is_error:
                self.add(problem.path, message)
            else:
                place = self._place(problem.path)
                self.warnings.append(f"warning: cfg.{problem.path}: {message}{place}")

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
        origins = dict.fromkeys(map(describe_origin, events))
        return "".join(f"\n  {origin}" for origin in origins)


def _is_about(path: str, left_out: Collection[str]) -> bool:
    """Whether a problem may be there only because parts could not be built."""
    if path == "checkpointer.best_metric_path":  # it names a part
        return any(part.startswith(("evals", "train_")) for part in left_out)
    return any(f"{part}.".startswith(f"{path}.") for part in left_out)
