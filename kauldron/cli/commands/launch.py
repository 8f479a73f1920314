"""`kauldron launch` and `kauldron sweep`: from flags to a running experiment."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from kauldron import konfig
from kauldron.cli.command_table import FAILED, OK, STOPPED, Implementation
from kauldron.cli.loading import bad_input, source_from_arguments
from kauldron.cli.terminal import UsageError
from kauldron.errors import a_type, did_you_mean, message_with_notes
from kauldron.konfig.overrides import config_files
from kauldron.konfig.overrides.config_files import ConfigSource
from kauldron.konfig.overrides.overrides import Override, apply_in_order
from kauldron.konfig.overrides.py_expressions import PREFIX
from kauldron.konfig.symbols import import_qualname
from kauldron.kxm import records
from kauldron.kxm.config_provider import ConfigProvider, fill_part, job_part
from kauldron.kxm.engines.executor import ENGINES, Executor, executor_of
from kauldron.kxm.engines.stacked import Stacked
from kauldron.kxm.experiment import Experiment
from kauldron.kxm.handle import ExperimentHandle, WorkUnitHandle
from kauldron.kxm.jobs import Job
from kauldron.kxm.kauldron_jobs import KauldronJobs
from kauldron.kxm.sweeps import sweep_from_flags

_PACKAGED = ("kd_base", "single")
_DEFAULT = "kd_base"
_XP_HELP = "--xp.help lists the fields of experiments (--xp.path=value) and of engines."


class Launch(Implementation):
    """Start an experiment: the jobs of a config, or any program."""

    configs = ("cfg", "xp")
    needs_configs = False

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.epilog = _XP_HELP
        parser.add_argument(
            "--dry",
            action="store_true",
            help="check everything and print what would run; write nothing",
        )
        parser.add_argument(
            "--confirm", action="store_true", help="show the work units and ask"
        )
        parser.add_argument(
            "--nowait",
            action="store_true",
            help="return as soon as everything is submitted",
        )

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        with user_errors():
            experiment = build_experiment(args.xp, args.cfg)
        return _start(experiment, args)


class Sweep(Launch):
    """Start one run for each combination of values given on the command line."""

    configs = ("cfg", "xp", "sweep")

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        Launch.add_arguments(parser)
        parser.epilog = (
            "Values: 1,2,3 a list; 0:4 the numbers 0 to 3; 0:10:2 every second; "
            "0:1:lin5 five numbers with both ends; 1e-4:1e-1:log4 four with equal ratios. "
            f"{_XP_HELP}"
        )
        parser.add_argument(
            "--stack",
            action="store_true",
            help="train runs that differ only in numbers together, in one program",
        )
        parser.add_argument(
            "--plan",
            action="store_true",
            help="print which runs --stack would train together; start nothing",
        )

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        flags = [override.flag for override in args.sweep.overrides]
        if args.sweep.file is not None or not flags:
            raise UsageError(
                "What should vary? Write --sweep.path=values, such as --sweep.seed=0:4 or "
                "--sweep.optimizer.learning_rate=1e-3,3e-3."
            )
        if args.stack or args.plan:
            args.xp = _on_stacked(args.xp)
        with user_errors():
            experiment = build_experiment(args.xp, args.cfg)
            is_kauldron = isinstance(experiment.jobs_provider, KauldronJobs)
            sweep = sweep_from_flags(flags, prefix="cfg." if is_kauldron else "")
            experiment = experiment.replace(sweep_info=sweep)
            _check_engine(experiment, args)
        return _plan(experiment) if args.plan else _start(experiment, args)


def _on_stacked(xp: ConfigSource) -> ConfigSource:
    """Return the flags of the experiment with the engine `Stacked`, unless one is given."""
    if any(override.path in ("executor", "engine") for override in xp.overrides):
        return xp
    engine, _ = source_from_arguments(["--xp.executor=stacked"], "xp")
    return dataclasses.replace(xp, overrides=(*engine.overrides, *xp.overrides))


def _check_engine(experiment: Experiment, args: argparse.Namespace) -> None:
    engine = type(experiment.common_executor)
    if (args.stack or args.plan) and not issubclass(engine, Stacked):
        flag = "--stack" if args.stack else "--plan"
        raise UsageError(
            f"{flag} is for the engine Stacked, not for {engine.__name__}."
        )


def _plan(experiment: Experiment) -> int:
    """Print the stacks of a sweep."""
    from kauldron.cli.commands.stack import plan_lines, trainer_of
    from kauldron.train.stacked.plan import make_stacks

    executor = experiment.common_executor
    assert isinstance(executor, Stacked)
    with user_errors():
        units = experiment.work_units()
        executor.validate(units)
    trainers = [trainer_of(unit) for unit in units]
    stacks = make_stacks(trainers, max_units=executor.max_units)
    print("\n".join(plan_lines(units, stacks, is_detailed=True)))
    return OK


def _start(experiment: Experiment, args: argparse.Namespace) -> int:
    with user_errors():
        if args.nowait and experiment.common_executor.waits:
            raise UsageError(
                "--nowait: on this machine, jobs end with the command that starts them. Put "
                "it into the background instead: nohup kauldron ... &"
            )
        handle = experiment.launch(
            wait=False if args.nowait else None,
            confirm=args.confirm,
            announce=True,
            dry=args.dry,
        )
    goes_on = args.nowait or not experiment.common_executor.waits
    if goes_on and handle.work_units:
        print(f"Experiment {handle.xid} in {handle.xp_dir}")
        print(f"How it goes: kauldron xp status {handle.xid}")
    return exit_code(handle, handle.work_units)


def exit_code(handle: ExperimentHandle, ran: Sequence[WorkUnitHandle]) -> int:
    """Return 1 if a work unit failed, 143 if one of those that ran was stopped."""
    if records.FAILED in handle.status():
        return FAILED
    return STOPPED if any(u.state == records.STOPPED for u in ran) else OK


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Show what users can do something about without a traceback."""
    try:
        yield
    except (
        AttributeError,
        ImportError,
        LookupError,
        OSError,
        RuntimeError,  # such as another launcher that runs the experiment
        TypeError,
        ValueError,
    ) as error:
        raise UsageError(message_with_notes(error)) from error


#
# The experiment
#


def build_experiment(xp: ConfigSource, cfg: ConfigSource) -> Experiment:
    """Return the experiment that the flags `--xp` and `--cfg` describe."""
    if any(override.path == "help" for override in xp.overrides):
        raise UsageError(describe_fields())
    overrides = [o for o in xp.overrides if o.path != "traceback"]
    with bad_input(xp):
        node = _load(xp.file or _DEFAULT)
        overrides = _engine_first(overrides)
        _check_fields(node, overrides)
        _prepare(node, overrides)
        apply_in_order(node, overrides)
    experiment = _resolve(node)
    provider = _provider(cfg)
    flags = [o.path for o in overrides]
    changes = {"cfg_provider": provider} if provider is not None else {}
    return experiment.replace(flags=flags, **changes)


def _load(text: str) -> konfig.ConfigDict:
    file, argument = config_files.split_argument(text)
    if file in _PACKAGED:
        file = f"kauldron.xm.configs.{file}"
    elif hint := did_you_mean(file, _PACKAGED):
        raise UsageError(f"--xp={text}: there is no such experiment.{hint}")
    config_files.make_importable(*config_files.folders_around(file))
    with konfig.set_lazy_imported_modules(("*",)):
        module = config_files.load_module(file, "xp_config")
        return config_files.build_config(module, argument, ())


def _check_fields(node: konfig.ConfigDict, overrides: Sequence[Override]) -> None:
    """Refuse flags for fields that experiments and engines do not have."""
    cls = _class_of(node)
    engine = _class_of(node.get("executor")) or type(executor_of("local"))
    for override in overrides:
        names = [str(part) for part in override.parts]
        if names == ["executor"] and isinstance(override.value, konfig.ConfigDict):
            engine = _class_of(override.value) or engine
        if cls is not None:
            _check_field(cls, names[0], override)
        if names[0] == "jobs" and len(names) > 2:
            _check_field(Job, names[2], override)
        if names[0] == "executor" and len(names) > 1:
            _check_field(engine, names[1], override)


def _class_of(node: Any) -> type | None:
    if not isinstance(node, konfig.ConfigDict) or "__qualname__" not in node:
        return None
    try:
        cls = import_qualname(node["__qualname__"])
    except (ImportError, AttributeError):  # whoever resolves it will say so
        return None
    return cls if dataclasses.is_dataclass(cls) and isinstance(cls, type) else None


def _check_field(cls: type, name: str, override: Override) -> None:
    known = [field.name for field in dataclasses.fields(cls)]
    if name not in known:
        raise UsageError(
            f"{override.flag}: {cls.__name__} has no field {name!r}."
            f"{did_you_mean(name, known)} --xp.help lists all."
        )


def _prepare(node: konfig.ConfigDict, overrides: Sequence[Override]) -> None:
    """Make the parts that nested flags go to."""
    for override in overrides:
        first, *rest = override.parts
        if rest:
            fill_part(node, first)
        if first == "jobs" and len(rest) > 1:
            job = node.jobs.setdefault(str(rest[0]), job_part("Job"))
            if len(rest) > 2:
                fill_part(job, rest[1])


def _engine_first(overrides: Sequence[Override]) -> list[Override]:
    """Turn `--xp.executor=slurm` into the engine, before flags for its options."""
    engines, others = [], []
    for override in overrides:
        is_engine = override.parts[-1] in ("executor", "engine")
        is_name = override.is_text and not override.value.startswith(PREFIX)
        if is_engine and is_name:
            cls = type(executor_of(override.value))
            path = f"{cls.__module__}:{cls.__qualname__}"
            node = konfig.ConfigDict({"__qualname__": path})
            changed = dataclasses.replace(override, value=node, is_text=False)
            engines.append(changed)
        else:
            others.append(override)
    return [*engines, *others]


def _resolve(node: konfig.ConfigDict) -> Experiment:
    problems = konfig.check(node)
    if problems:
        lines = (str(problem).replace("cfg", "xp", 1) for problem in problems)
        raise UsageError("\n".join(lines))
    experiment = konfig.resolve(node, freeze=False)
    if not isinstance(experiment, Experiment):
        raise UsageError(
            f"--xp describes {a_type(experiment)}, not a `kxm.Experiment`."
        )
    return experiment


def _provider(source: ConfigSource) -> ConfigProvider | None:
    if getattr(source, "patch_flags", ()):
        raise UsageError("--patch is for trying a config here: use `kauldron train`.")
    if source.file is None:
        if source.overrides:
            raise UsageError(f"{source.overrides[0].flag}: --cfg=config.py is missing.")
        return None
    with bad_input(source):
        return ConfigProvider.from_source(source)


def describe_fields() -> str:
    """Return the fields of an experiment and of the engines, with types and defaults."""
    lines = ["--xp.FIELD=VALUE sets a field of the experiment:"]
    lines += _field_lines(Experiment)
    for name in ENGINES:
        cls: type[Executor] = type(executor_of(name))
        lines += ["", f"--xp.executor={name} --xp.executor.FIELD=VALUE:"]
        lines += _field_lines(cls)
    return "\n".join(lines)


def _field_lines(cls: type) -> list[str]:
    lines = []
    for field in dataclasses.fields(cls):
        has_default = field.default is not dataclasses.MISSING
        default = f" = {field.default!r}" if has_default else ""
        lines.append(f"  {field.name}: {field.type}{default}")
    return lines
