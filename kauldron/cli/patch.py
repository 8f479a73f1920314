"""`--patch.name=value`: make a config small, for a quick try of everything in it."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

from kauldron import konfig, path_grammar
from kauldron.cli.terminal import UsageError
from kauldron.errors import nearest
from kauldron.konfig.overrides.config_files import ConfigSource, take_overrides
from kauldron.konfig.overrides.overrides import Override
from kauldron.konfig.overrides.values import parse_value
from kauldron.konfig.tree.history import recording
from kauldron.konfig.tree.paths import find_targets, has_wildcard

BATCH_SIZE_DEVICES = "devices"

_PROFILE_STEPS = 17


def _patch(default: Any, text: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatchConfig:
    """Changes that make a config small: a step, a batch, no checkpoints.

    `None` leaves a value as the config has it.

    Attributes:
      stop_after_steps: Number of steps to train.
      batch_size: Of all data sets; `"devices"` is one example for each local device.
      num_batches: Of each evaluation.
      skip_eval: Whether to leave out the evaluators.
      eval_run_once: Whether each evaluator runs once, at step 0.
      skip_checkpointer: Whether to save nothing.
      skip_metrics: Whether to leave out the metrics.
      skip_summaries: Whether to leave out the summaries.
      skip_flatboard: Accepted for older code; has no effect on a run.
      profile: Whether to train 17 steps and record a profile.
      checkify: Whether to make all run-time checks.

    Example:
      >>> cfg = konfig.ConfigDict({"train_ds": {"batch_size": 256}, "checkpointer": {}})
      >>> patched, changes = PatchConfig(batch_size=2)(cfg)
      >>> changes
      {'stop_after_steps': 1, 'train_ds.batch_size': 2, 'checkpointer': None}
      >>> cfg.train_ds.batch_size
      256
    """

    stop_after_steps: int | None = _patch(1, "number of steps to train")
    batch_size: int | str | None = _patch(
        BATCH_SIZE_DEVICES, "of all data sets; 'devices' for one example per device"
    )
    num_batches: int | None = _patch(1, "of each evaluation")
    skip_eval: bool = _patch(False, "leave out the evaluators")
    eval_run_once: bool = _patch(True, "each evaluator runs once, at step 0")
    skip_checkpointer: bool = _patch(True, "save nothing")
    skip_metrics: bool = _patch(False, "leave out the metrics")
    skip_summaries: bool = _patch(False, "leave out the summaries")
    skip_flatboard: bool = _patch(True, "accepted for older scripts; has no effect")
    profile: bool = _patch(False, "train 17 steps and record a profile")
    checkify: bool = _patch(False, "make all run-time checks")

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, bool):
                if not isinstance(value, bool):
                    _refuse(field.name, value, "True or False")
            elif field.name == "batch_size" and value == BATCH_SIZE_DEVICES:
                pass
            elif value is not None and (type(value) is not int or value < 0):
                _refuse(field.name, value, "a number of at least 0, or None")

    def __call__(
        self, cfg: konfig.ConfigDict, *, keep: Sequence[str] = ()
    ) -> tuple[konfig.ConfigDict, dict[str, Any]]:
        """Make a small copy of a config.

        Args:
          cfg: The config of a trainer; it stays as it is.
          keep: Paths, wildcards allowed, of fields that stay as they are.

        Returns:
          The copy, and from path to value what was changed in it.
        """
        patched = copy.deepcopy(cfg)
        changes: dict[str, Any] = {}
        for path, value in self._updates(patched):
            root, dot, _ = path.partition(".")
            if dot and not isinstance(patched.get(root), konfig.ConfigDict):
                continue
            if root not in patched and value in (None, {}):
                continue  # what is not there is skipped already
            changes |= tracked_update(
                patched, path, value, keep=keep, label=f"--patch ({path})"
            )
        return patched, changes

    def _updates(self, cfg: konfig.ConfigDict) -> list[tuple[str, Any]]:
        updates: list[tuple[str, Any]] = []
        if self.stop_after_steps is not None or self.profile:
            steps = _PROFILE_STEPS if self.profile else self.stop_after_steps
            updates.append(("stop_after_steps", steps))
        if self.batch_size is not None:
            updates += self._batch_size_updates()
        updates += self._eval_updates(cfg)
        if self.skip_checkpointer:
            updates.append(("checkpointer", None))
        for is_skipped, name in (
            (self.skip_metrics, "metrics"),
            (self.skip_summaries, "summaries"),
        ):
            if is_skipped:
                updates += [(f"train_{name}", {}), (f"evals.*.{name}", {})]
        if self.skip_eval or self.skip_metrics:
            updates += _early_stopping_updates(cfg)
        if self.skip_flatboard:
            updates.append(("setup.add_flatboard", False))
        if self.profile:
            updates += _profiler_updates(cfg)
        if self.checkify:
            checks = {"__const__": "jax.experimental.checkify:all_checks"}
            updates.append(("checkify_error_categories", konfig.ConfigDict(checks)))
        return updates

    def _batch_size_updates(self) -> list[tuple[str, Any]]:
        size = self.batch_size
        if size == BATCH_SIZE_DEVICES:
            import jax

            size = jax.local_device_count()
        return [
            ("train_ds.**.batch_size", size),
            ("train_ds.**.shuffle_buffer_size", 1),
            ("eval_ds.**.batch_size", size),
            ("evals.**.batch_size", size),
        ]

    def _eval_updates(self, cfg: konfig.ConfigDict) -> list[tuple[str, Any]]:
        if self.skip_eval:
            return [("evals", {})]
        updates: list[tuple[str, Any]] = []
        if self.num_batches is not None:
            updates.append(("evals.**.num_batches", self.num_batches))
        if self.eval_run_once:
            once = {"__qualname__": "kauldron.kd:evals.Once", "0": 0}
            evaluators = cfg.get("evals") or {}
            for name, evaluator in evaluators.items():
                if isinstance(evaluator, konfig.ConfigDict):
                    path = path_grammar.format_path(("evals", name, "run"))
                    updates.append((path, konfig.ConfigDict(once)))
        return updates


def _profiler_updates(cfg: konfig.ConfigDict) -> list[tuple[str, Any]]:
    fields = {"profile_duration_ms": None, "on_colab": True}
    if isinstance(cfg.get("profiler"), konfig.ConfigDict):  # keep what it has besides
        return [(f"profiler.{name}", value) for name, value in fields.items()]
    qualname = {"__qualname__": "kauldron.kd:inspect.Profiler"}
    return [("profiler", konfig.ConfigDict(qualname | fields))]


def _early_stopping_updates(cfg: konfig.ConfigDict) -> list[tuple[str, Any]]:
    """Leave out early stopping: what it looks at may be left out, too."""
    hooks = cfg.get("hooks") or {}
    kept = {
        name: hook
        for name, hook in hooks.items()
        if not _is_call_of(hook, "EarlyStopping")
    }
    return [("hooks", kept)] if len(kept) < len(hooks) else []


def _is_call_of(value: Any, name: str) -> bool:
    qualname = (
        value.get("__qualname__") if isinstance(value, konfig.ConfigDict) else None
    )
    return qualname is not None and re.split("[:.]", qualname)[-1] == name


def _refuse(name: str, value: Any, expected: str) -> None:
    raise ValueError(f"PatchConfig.{name} must be {expected}, got {value!r}.")


#
# Changes that are reported
#


def tracked_update(
    cfg: konfig.ConfigDict,
    path: str,
    value: Any,
    *,
    keep: Iterable[str] = (),
    label: str = "tracked_update()",
) -> dict[str, Any]:
    """Set the places that a path names, and return which ones were changed.

    Args:
      cfg: The config to change.
      path: A path, wildcards allowed: `"evals.**.num_batches"`. With wildcards, places
        that exist are set, and there may be none.
      value: What to set; each place gets a copy.
      keep: Paths, wildcards allowed, of places that stay as they are.
      label: What the history of the fields says.

    Returns:
      From path to the new value, for each place that had another value before.

    Example:
      >>> cfg = konfig.ConfigDict({"a": {"n": 1}, "b": {"n": 5}})
      >>> tracked_update(cfg, "**.n", 5)
      {'a.n': 5}
    """
    patterns = [path_grammar.parse(pattern) for pattern in keep]
    parts = path_grammar.parse(path)
    try:
        targets = find_targets(cfg, parts)
    except KeyError:
        if not has_wildcard(parts):
            raise
        return {}
    changes = {}
    for target in targets:
        name = path_grammar.format_path(target)
        is_kept = any(path_grammar.matches(target, pattern) for pattern in patterns)
        if not is_kept and not _has_value(cfg, target, value):
            with recording("cli", label):
                konfig.set_by_path(cfg, target, copy.deepcopy(value))
            changes[name] = value
    return changes


def _has_value(cfg: konfig.ConfigDict, target: tuple[Any, ...], value: Any) -> bool:
    try:
        return bool(konfig.get_by_path(cfg, target) == value)
    except (KeyError, ValueError):  # a new field, or one that is not set
        return False


#
# The flags
#


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatchedSource(ConfigSource):
    """A config that is made small after it was built.

    Attributes:
      patch: How. What the user overrides stays as the user wants it.
      patch_flags: The flags as typed.
      changes: What the patch changed, from path to value; filled in by `build`.
    """

    patch: PatchConfig
    patch_flags: tuple[str, ...] = ()
    changes: dict[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    def build(self, *, import_nothing: bool = False) -> konfig.ConfigDict:
        keep = [override.path for override in self.overrides]
        cfg = super().build(import_nothing=import_nothing)
        cfg, changes = self.patch(cfg, keep=keep)
        self.changes.clear()
        self.changes.update(changes)
        return cfg

    def as_flags(self) -> list[str]:
        return [*super().as_flags(), *self.patch_flags]


def take_patch(
    source: ConfigSource, arguments: Sequence[str]
) -> tuple[ConfigSource, list[str]]:
    """Let `--patch` and `--patch.name=value` change a config; return the rest."""
    try:
        overrides, others = take_overrides(arguments, "patch")
    except ValueError as error:
        raise UsageError(str(error)) from error
    rest = [argument for argument in others if argument != "--patch"]
    if not overrides and len(rest) == len(others):
        return source, rest
    values = {override.path: _value(override) for override in overrides}
    try:
        patch = PatchConfig(**values)
    except ValueError as error:
        raise UsageError(f"--patch: {error}") from error
    flags = tuple(argument for argument in arguments if argument not in rest)
    return PatchedSource(**vars(source), patch=patch, patch_flags=flags), rest


def _value(override: Override) -> Any:
    fields = {field.name: field for field in dataclasses.fields(PatchConfig)}
    if override.path not in fields:
        close = nearest(override.path, fields)
        hint = f" Did you mean --patch.{close[0]}?" if close else ""
        raise UsageError(
            f"{override.flag}: there is no such patch.{hint} There are: "
            f"{', '.join(fields)}."
        )
    if not override.is_text:
        return override.value
    is_bool = isinstance(fields[override.path].default, bool)
    return parse_value(override.value, bool if is_bool else object)


def describe_patches() -> str:
    """Return the flags with their defaults, for `--help`."""
    lines = [
        f"  --patch.{field.name}={field.default}".ljust(36) + field.metadata["help"]
        for field in dataclasses.fields(PatchConfig)
    ]
    return "\n".join(lines)
