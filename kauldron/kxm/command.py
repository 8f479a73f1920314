"""From the parameters of a job to the command that runs it.

`target` becomes the beginning of an argv, `args` the flags behind it, placeholders the
folders and files of the work unit, and `debug` environment variables of jax.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kauldron.konfig import ConfigDict
from kauldron.konfig.overrides.py_expressions import PREFIX
from kauldron.konfig.overrides.values import format_value
from kauldron.konfig.text.json_format import to_plain
from kauldron.kxm import records
from kauldron.kxm.jobs import Job, Platform

if TYPE_CHECKING:
    from kauldron.kxm.experiment import Experiment

WU_DIR_PROXY = "__kxm_wu_workdir__"
XP_DIR_PROXY = "__kxm_xp_workdir__"
CFG_FLAG_VALUES = "__kxm_cfg_flag_values__"
_FILE_PROXY = re.compile(r"__kxm_file__\(([^()]*)\)")
KAULDRON_TARGET = "kauldron.main"
_LONGEST_FLAG = 100_000
_LONGEST_COMMAND = 1_000_000
_LARGEST_COPY = 200_000_000
FREE_PORT = "free"  # replaced by a port when the job starts


def file_path(name: str) -> str:
    """Return a placeholder for the path of a file of the job.

    Args:
      name: Its key in the job's `files`.

    Returns:
      A placeholder to use in `args`, `env_vars` and the like; text may follow it.

    Example:
      >>> file_path("config.py") + ":debug"
      '__kxm_file__(config.py):debug'
    """
    return f"__kxm_file__({name})"


#
# What to run
#


def target_argv(job: Job, *, cwd: str) -> list[str]:
    """Return the beginning of the command; relative paths begin at `cwd`."""
    target = job.interpreter_info.script_path or job.target
    python = job.python or sys.executable
    if not target:
        raise ValueError(
            f"The job {job.name!r} has no target: set `target=`, or "
            f"--xp.jobs.{job.name}.target=path/to/program.py."
        )
    if not isinstance(target, str):
        return [str(part) for part in target]
    if target.startswith("//"):
        file = label_file(target, cwd)
        if file is not None:
            return [python, file]
        raise ValueError(_not_runnable(target))
    module = target.removeprefix("module:")
    if re.fullmatch(r"\w+(\.\w+)*", module) and not module.endswith(".py"):
        top = module.partition(".")[0]
        if "." in module or target != module:
            if _is_importable(top, cwd):
                return [python, "-m", module]
            if target != module:
                raise ValueError(f"target={target!r}: there is no module {top!r}.")
    path = pathlib.Path(cwd, target).absolute()
    if target.endswith(".py"):
        if not path.is_file():
            raise ValueError(f"target={target!r}: there is no file {path}.")
        return [python, str(path)]
    if os.sep in target and path.is_file() and os.access(path, os.X_OK):
        return [str(path)]
    if os.sep not in target and shutil.which(target):
        return [target]
    if _is_importable(target, cwd) and target.isidentifier():
        return [python, "-m", target]
    raise ValueError(_not_runnable(target))


def _is_importable(top: str, cwd: str) -> bool:
    if any(pathlib.Path(cwd, name).exists() for name in (top, f"{top}.py")):
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _not_runnable(target: str) -> str:
    return (
        f"target={target!r} cannot be run. Expected a list of arguments, "
        "the dotted name of a module (`pkg.mod`, `module:pkg`), a file that ends in .py, "
        "an executable file, a command on PATH, or a label `//a/b:c` of the file "
        "a/b/c.py."
    )


def label_file(label: str, cwd: str) -> str | None:
    """Return the file that a build label means: `a/b/c.py` for `//a/b:c`."""
    folder, _, name = label.removeprefix("//").partition(":")
    name = name or folder.rpartition("/")[2]
    for top in filter(None, (cwd, git_top(cwd))):
        path = pathlib.Path(top, folder, f"{name}.py")
        if path.is_file():
            return str(path)
    return None


def git_top(folder: str | os.PathLike[str]) -> str | None:
    """Return the top of the git repository around a folder."""
    result = git(folder, "rev-parse", "--show-toplevel")
    return result.strip() if result else None


def git(folder: str | os.PathLike[str], *arguments: str) -> str | None:
    """Return the output of a git command; `None` without git or a repository."""
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


#
# Flags
#


def flags(job: Job, fill: Callable[[Any], Any], config_flag: str | None) -> list[str]:
    """Return the flags of a job, with placeholders replaced by `fill`.

    Values below `config_flag` are written for konfig, which reads `123` as a number.
    """
    result = []
    for name, value in job.args.items():
        is_config = config_flag is not None and name.startswith(
            (f"{config_flag}.", f"{config_flag}[")
        )
        try:
            text = (config_text if is_config else text_of)(fill(value))
        except TypeError as error:
            raise TypeError(f"Job {job.name!r}, argument {name!r}: {error}") from None
        result.append(f"--{name}={text}")
    return result


def is_too_long(flags: Sequence[str]) -> bool:
    """Return whether a command line cannot hold the flags; Linux takes 128 KiB each."""
    sizes = [len(flag.encode()) for flag in flags]
    is_long = max(sizes, default=0) > _LONGEST_FLAG or sum(sizes) > _LONGEST_COMMAND
    return is_long and not any("\n" in flag for flag in flags)


def text_of(value: Any) -> str:
    """Return how a value is written as a flag: text as it is, all else as JSON.

    Example:
      >>> [text_of(v) for v in ("a b", True, None, (1, 2))]
      ['a b', 'true', 'null', '[1, 2]']
    """
    return value if isinstance(value, str) else json.dumps(plain(value))


def config_text(value: Any) -> str:
    """Return how a value is written so that konfig reads the same value.

    Example:
      >>> [config_text(v) for v in ("123", 123, "cosine", None)]
      ["'123'", '123', 'cosine', 'None']
    """
    value = plain(value, keep_tuples=True)
    if isinstance(value, str):
        return value if value.startswith(PREFIX) else format_value(value)
    if isinstance(value, bool | int):
        return json.dumps(value)
    return format_value(value)


def plain(value: Any, *, keep_tuples: bool = False) -> Any:
    """Return a value as JSON knows it: configs as dicts, tuples as lists."""
    if isinstance(value, ConfigDict):
        return to_plain(value)
    if hasattr(value, "tolist"):  # an array, or a numpy scalar
        return plain(value.tolist(), keep_tuples=keep_tuples)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v, keep_tuples=keep_tuples) for k, v in value.items()}
    if isinstance(value, list | tuple):
        items = [plain(item, keep_tuples=keep_tuples) for item in value]
        return tuple(items) if keep_tuples and isinstance(value, tuple) else items
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(type(value), "__konfig_symbol__"):
        return to_plain(value)
    raise TypeError(
        f"a {type(value).__module__}.{type(value).__qualname__} cannot be given on a "
        f"command line: {value!r:.80}"
    )


#
# Placeholders
#


def placeholder_filler(
    *,
    wu_dir: str,
    xp_dir: str,
    files: Mapping[str, str],
) -> Callable[[Any], Any]:
    """Return a function that replaces the placeholders in texts, lists and dicts."""

    def file_of(match: re.Match[str]) -> str:
        if match[1] not in files:
            known = ", ".join(map(repr, files)) or "none"
            raise ValueError(
                f"kxm.file_path({match[1]!r}): the job has no such file. Its files: "
                f"{known}."
            )
        return files[match[1]]

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            value = value.replace(WU_DIR_PROXY, wu_dir)
            value = value.replace(XP_DIR_PROXY, xp_dir)
            return _FILE_PROXY.sub(file_of, value)
        if isinstance(value, ConfigDict):
            return value
        if isinstance(value, Mapping):
            return {k: fill(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [fill(item) for item in value]
        return value

    return fill


#
# The environment of jax
#


def jax_environment(
    job: Job,
    *,
    wu_dir: str,
    xp_dir: str,
    compilation_cache: bool,
    is_set: Iterable[str] = (),
) -> dict[str, str]:
    """Return the environment variables that the parameters of a job ask for."""
    env: dict[str, str] = {}
    platform = Platform.parse(job.platform) if job.platform else None
    if platform is not None and platform.kind == "cpu":
        env["JAX_PLATFORMS"] = "cpu"
    if not job.add_jax_flags:
        return env
    if job.debug.dump_hlo:
        dump = f"--xla_dump_to={os.path.join(wu_dir, 'xla_dump')}"
        env["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {dump}".strip()
    if job.debug.jax_log_compiles:
        env["JAX_LOG_COMPILES"] = "1"
    if job.debug.flax_profile:
        env["FLAX_PROFILE"] = "true"
    if job.debug.xprof_port:
        env["KXM_PROFILER_PORT"] = FREE_PORT
    has_device = platform is not None and platform.kind != "cpu"
    if compilation_cache and has_device and "JAX_COMPILATION_CACHE_DIR" not in is_set:
        env["JAX_COMPILATION_CACHE_DIR"] = os.path.join(xp_dir, ".kxm", "jax_cache")
    return env


#
# Copies of the code, so that later edits do not reach work that waits in a queue
#


def code_top(xp: Experiment) -> str:
    """Return the top of the git repository with the config, or with this folder."""
    path = xp.cfg_provider.path if xp.cfg_provider is not None else None
    folder = os.getcwd()
    if path is not None and os.path.exists(path):
        folder = os.path.dirname(os.path.abspath(path))
    top = git_top(folder)
    if top is None:
        raise ValueError(
            f"snapshot=True copies a git repository, but {folder} is not in one."
        )
    return top


def code_folder(xp_dir: pathlib.Path) -> pathlib.Path:
    """Return where the copy is."""
    return records.private(xp_dir) / "code"


def copy_code(top: str, target: pathlib.Path, *, without: str) -> None:
    """Copy the files of a repository that git tracks, or does not ignore.

    The folder `without` is left out: experiments may be inside the repository.
    """
    for name in _code_files(top, without):
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(os.path.join(top, name), copy, follow_symlinks=False)


def _code_files(top: str, without: str) -> list[str]:
    listed = git(top, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = [name for name in dict.fromkeys((listed or "").split("\0")) if name]
    kept = [
        name
        for name in names
        if not os.path.join(top, name).startswith(os.path.join(without, ""))
        and os.path.lexists(os.path.join(top, name))
        and not os.path.isdir(os.path.join(top, name))
    ]
    size = sum(os.lstat(os.path.join(top, name)).st_size for name in kept)
    if size > _LARGEST_COPY:
        raise ValueError(
            f"snapshot=True would copy {size / 1e6:.0f} MB from {top}. Add what is "
            "not code to its .gitignore."
        )
    return kept


def paths_in_copy(xp: Experiment, xp_dir: pathlib.Path) -> Callable[[str], str]:
    """Return a function that makes the paths in an argument point into the copy."""
    top = code_top(xp)
    root = xp.dir_builder.root_dir
    _code_files(top, root)
    start = re.compile(rf"(^|=){re.escape(top)}(?=/|$)")
    results = re.compile(rf"(^|=){re.escape(root)}(?=/|$)")
    copy = str(code_folder(xp_dir))

    def in_copy(argument: str) -> str:
        if results.search(argument):
            return argument
        return start.sub(lambda match: match[1] + copy, argument, count=1)

    return in_copy


def python_path(xp_dir: pathlib.Path) -> str:
    """Return a PYTHONPATH that begins with the copy."""
    before = os.environ.get("PYTHONPATH")
    return os.pathsep.join(filter(None, [str(code_folder(xp_dir)), before]))
