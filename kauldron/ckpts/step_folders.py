"""Which checkpoints a folder holds, seen from the outside; moving and removing them."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import json
import math
import mmap
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from etils import epath

from kauldron.files import write_atomically

CHECKPOINT_FOLDER_NAME = "checkpoints"
METRICS_ITEM_NAME = "metrics"
_STEP_FOLDER = re.compile(r"ckpt_(0|[1-9][0-9]*)")
_TEMPORARY_MARK = ".orbax-checkpoint-tmp"
_DELETING_MARK = ".deleting"
_UNREADABLE_MARK = ".unreadable"
_SNAPSHOT = re.compile(r"_SNAPSHOTS-([0-9]+)")
_SNAPSHOT_LIFETIME_SECONDS = 3 * 3600
_MOST_ATTEMPTS = 10
_SECONDS_BETWEEN_ATTEMPTS = 0.05

# Other errors are raised: a folder that cannot be read must not look empty.
_NOT_THERE = (FileNotFoundError, NotADirectoryError)

#
# Listing
#


def check_step(step: int) -> None:
    """Refuse what cannot be the step of a checkpoint; -1 stands for the newest."""
    if step < -1:
        raise ValueError(f"step must be 0 or more, or -1 for the newest, got {step}.")


def step_folder(root: epath.Path, step: int) -> epath.Path:
    """Return the folder of one checkpoint."""
    return root / f"ckpt_{step}"


def named_steps(root: epath.Path) -> list[int]:
    """Return the steps of all folders named like a checkpoint, ascending."""
    found = (_STEP_FOLDER.fullmatch(path.name) for path in _children(root))
    return sorted(int(match.group(1)) for match in found if match)


def complete_steps(root: epath.Path) -> list[int]:
    """Return the steps of the checkpoints that were written to the end, ascending."""
    return [step for step in named_steps(root) if is_complete(root, step)]


def is_complete(root: epath.Path, step: int) -> bool:
    """Return whether a checkpoint was written to the end."""
    folder = step_folder(root, step)
    if not item_names(folder):
        return False
    has_marker = (folder / "commit_success.txt").exists()
    return has_marker or bool(read_metadata(folder).get("commit_timestamp_nsecs"))


def item_names(folder: epath.Path) -> list[str]:
    """Items that a checkpoint holds."""
    children = (path for path in _children(folder) if path.name != METRICS_ITEM_NAME)
    return [path.name for path in children if path.is_dir()]


_METADATA_FILENAME = "_CHECKPOINT_METADATA"


def read_metadata(folder: epath.Path) -> dict[str, Any]:
    """Return the metadata that orbax wrote; empty if there is none."""
    return _read_json(folder / _METADATA_FILENAME) or {}


def read_metrics(folder: epath.Path) -> dict[str, Any] | None:
    """Return the metrics of a checkpoint, if it has any."""
    return _read_json(folder / METRICS_ITEM_NAME / METRICS_ITEM_NAME)


def _read_json(path: epath.Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (*_NOT_THERE, ValueError):
        return None


def _children(root: epath.Path) -> Iterator[epath.Path]:
    try:
        yield from root.iterdir()
    except _NOT_THERE:
        return


#
# Moving and removing
#


def delete(root: epath.Path, step: int) -> None:
    """Remove a checkpoint so that no reader sees a part of it."""
    _remove(_rename(root, step, _DELETING_MARK))


def put_aside(root: epath.Path, step: int) -> epath.Path:
    """Rename a checkpoint that cannot be read, and so free its name."""
    return _rename(root, step, _UNREADABLE_MARK)


def remove_temporary(root: epath.Path, step: int) -> None:
    """Remove what a failed save left, also while its last writes are still ending."""
    for path in list(_children(root)):
        if path.name.startswith(f"ckpt_{step}{_TEMPORARY_MARK}"):
            _remove_in_use(path)


def _remove_in_use(path: epath.Path) -> None:
    """Remove a folder, and again if a write that is still ending recreates it."""
    for _ in range(_MOST_ATTEMPTS):
        with contextlib.suppress(OSError):
            _remove(path)
        time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
        if not is_taken(path):
            return
    _remove(path)


def remove_leftovers(root: epath.Path) -> None:
    """Remove what a killed job left: half-written and half-deleted checkpoints."""
    for path in _children(root):
        is_ours = path.name.startswith("ckpt_")
        is_temporary = _TEMPORARY_MARK in path.name
        if is_ours and (is_temporary or path.name.endswith(_DELETING_MARK)):
            _remove(path)


def remove_old_snapshots(root: epath.Path) -> None:
    """Remove the `_SNAPSHOTS-<nanoseconds>` folders that are no longer needed."""
    newest = time.time() - _SNAPSHOT_LIFETIME_SECONDS
    for path in _children(root):
        match = _SNAPSHOT.fullmatch(path.name)
        if match and int(match.group(1)) / 1e9 < newest:
            path.rmtree(missing_ok=True)


def _rename(root: epath.Path, step: int, mark: str) -> epath.Path:
    folder = step_folder(root, step)
    target = root / f"{folder.name}{mark}"
    if is_taken(target):
        _remove(target)
    return folder.rename(target)


def is_taken(path: epath.Path) -> bool:
    """Return whether this name is taken, even by a link that leads nowhere."""
    return os.path.islink(path) or path.exists()


def _remove(path: epath.Path) -> None:
    """Remove a folder; of a link to one, the link alone."""
    if os.path.islink(path):
        os.unlink(path)
    else:
        path.rmtree(missing_ok=True)


#
# Sizes and checksums of the files of a checkpoint
#


CHECKSUMS_FILENAME = "checksums.json"
_SUMS_FILENAME = "checksums_{process}.json"
# Larger files get a cheaper checksum, noted by the process that wrote them.
_SMALL_BYTES = 1 << 20
_OWNER = re.compile(r"(?:^|/)ocdbt\.process_([0-9]+)/")


def write_checksums(folder: epath.Path) -> None:
    """Note the sizes of all files of a checkpoint, and checksums of the small ones."""
    files = dict(_files(folder))
    sizes = {name: path.stat().length for name, path in files.items()}
    small = [name for name, size in sizes.items() if size <= _SMALL_BYTES]
    crcs = {name: _crc(files[name]) for name in small}
    _note(folder, CHECKSUMS_FILENAME, {"sizes": sizes, "crc32c": crcs})


def write_sums(folder: epath.Path) -> None:
    """Note checksums of the large files that this process wrote.

    Nothing is noted in an object store, which has checksums of its own: the files would
    come back over the network.
    """
    if "://" in str(folder):
        return
    process = jax.process_index()
    sums = {
        name: sum_of_mapped(path)
        for name, path in _files(folder)
        if _owner(name) == process and path.stat().length > _SMALL_BYTES
    }
    if sums:
        _note(folder, _SUMS_FILENAME.format(process=process), {"sums": sums})


def check_checksums(folder: epath.Path) -> None:
    """Raise `OSError` if a file has changed since its checksum was noted.

    Several processes divide the large files among them.
    """
    noted = _read_checksums(folder)
    if noted is None:
        return
    files = dict(_files(folder))
    sizes, crcs = noted["sizes"], noted["crc32c"]
    sums = {
        name: value
        for name, value in _read_sums(folder).items()
        if _owner(name) % jax.process_count() == jax.process_index()
    }
    changed = [
        name
        for name in {**sizes, **crcs}
        if name not in files
        or (name in sizes and files[name].stat().length != sizes[name])
        or (name in crcs and _crc(files[name]) != crcs[name])
        or (name in sums and sum_of_read(files[name]) != sums[name])
    ]
    if changed:
        raise OSError(
            f"{folder} is damaged: these files changed after they were written: "
            f"{', '.join(changed)}."
        )


def _owner(name: str) -> int:
    """Return the process that wrote a file of a checkpoint."""
    match = _OWNER.search(name)
    return int(match.group(1)) if match else 0


def add_metrics(folder: epath.Path, values: Mapping[str, Any]) -> None:
    """Add values to the metrics of a checkpoint, atomically."""
    content = {**(read_metrics(folder) or {}), **values}
    _change(folder, f"{METRICS_ITEM_NAME}/{METRICS_ITEM_NAME}", json.dumps(content))


def change_metadata(folder: epath.Path, changes: Mapping[str, Any]) -> None:
    """Change the custom metadata of a checkpoint, atomically."""
    metadata = read_metadata(folder)
    custom = {**(metadata.get("custom_metadata") or {}), **changes}
    content = json.dumps({**metadata, "custom_metadata": custom})
    _change(folder, _METADATA_FILENAME, content)


def _change(folder: epath.Path, name: str, content: str) -> None:
    noted = _read_checksums(folder)
    if noted is None:
        write_atomically(folder / name, content)
        return
    # In between, neither the old file nor the new must seem damaged.
    others = {
        kind: {file: value for file, value in values.items() if file != name}
        for kind, values in noted.items()
    }
    _note(folder, CHECKSUMS_FILENAME, others)
    write_atomically(folder / name, content)
    others["crc32c"][name] = _crc(folder / name)
    _note(folder, CHECKSUMS_FILENAME, others)


def _note(folder: epath.Path, name: str, noted: dict[str, dict[str, int]]) -> None:
    temporary = folder / f".{name}.tmp"
    temporary.write_text(json.dumps(noted))
    temporary.replace(folder / name)


def _read_checksums(folder: epath.Path) -> dict[str, dict[str, int]] | None:
    path = folder / CHECKSUMS_FILENAME
    return _read_noted(path, "sizes", "crc32c") if path.exists() else None


def _read_sums(folder: epath.Path) -> dict[str, int]:
    found = folder.glob(_SUMS_FILENAME.format(process="*"))
    noted = [_read_noted(path, "sums")["sums"] for path in found]
    return {name: value for sums in noted for name, value in sums.items()}


def _read_noted(path: epath.Path, *kinds: str) -> dict[str, dict[str, int]]:
    try:
        noted = json.loads(path.read_bytes())
        return {kind: dict(noted.get(kind, {})) for kind in kinds}
    except (ValueError, AttributeError, TypeError) as error:
        raise OSError(f"{path} is damaged: {error!r}.") from error


def _files(folder: epath.Path, name: str = "") -> Iterator[tuple[str, epath.Path]]:
    """Names relative to the folder, and paths."""
    for path in sorted(folder.iterdir()):
        if path.is_dir():
            yield from _files(path, f"{name}{path.name}/")
        elif not path.name.lstrip(".").startswith("checksums"):
            yield f"{name}{path.name}", path


#
# How they are computed: small files have a crc32c; large ones, that of their block sums
#


_PIECE_BYTES = 1 << 20  # fits in the cache of a processor
_SEGMENT_BYTES = 1 << 26  # what a thread reads
_BLOCK_BYTES = 4096
_MOST_THREADS = 8


def _crc(path: epath.Path) -> int:
    import crc32c

    crc = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            crc = crc32c.crc32c(piece, crc)
    return crc


def sum_of_mapped(path: epath.Path) -> int:
    """Return the checksum of a file that was just written, and is still in memory.

    Adding up needs no more time than the memory; crc32c of all would need twice that.
    One wrong number is always noticed: it changes the sum of its block.
    """
    try:
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        ):
            sums = _block_sums(content)
            return _crc_of_sums(sums, content[len(sums) * _BLOCK_BYTES :])
    except OSError:  # a file system without memory mapping
        return sum_of_read(path)


def sum_of_read(path: epath.Path) -> int:
    """Return the same for a file that may be damaged, or on a failing disk.

    What cannot be read raises an error here; in a mapped file it would end the process.
    """
    starts = range(0, path.stat().length, _SEGMENT_BYTES)
    threads = min(len(starts), os.cpu_count() or 1, _MOST_THREADS)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(functools.partial(_read_segment, path), starts))
    return _crc_of_sums(np.concatenate([sums for sums, _ in parts]), parts[-1][1])


def _read_segment(path: epath.Path, start: int) -> tuple[np.ndarray, bytes]:
    """Return the sums of the blocks of a segment, and what follows the last block."""
    sums, piece = [], b""
    with path.open("rb") as file:
        file.seek(start)
        for _ in range(_SEGMENT_BYTES // _PIECE_BYTES):
            piece = file.read(_PIECE_BYTES)
            sums.append(_block_sums(piece))
            if len(piece) < _PIECE_BYTES:
                break
    return np.concatenate(sums), piece[len(sums[-1]) * _BLOCK_BYTES :]


def _block_sums(content: bytes | mmap.mmap) -> np.ndarray:
    blocks, words = len(content) // _BLOCK_BYTES, _BLOCK_BYTES // 8
    numbers = np.frombuffer(content, "<u8", blocks * words)
    return numbers.reshape(blocks, words).sum(axis=1, dtype="<u8")


def _crc_of_sums(sums: np.ndarray, rest: bytes) -> int:
    import crc32c

    return crc32c.crc32c(rest, crc32c.crc32c(sums.tobytes()))


#
# Waiting for the next checkpoint of a run
#


def new_steps(
    latest_step: Callable[[], int | None],
    *,
    min_interval_secs: float,
    seconds_to_sleep: float,
    timeout: float | None,
    timeout_fn: Callable[[], bool] | None,
) -> Iterator[int]:
    """See `BaseCheckpointer.iter_new_checkpoints`; `latest_step` looks at the folder."""
    last = -1
    deadline = _deadline(timeout)
    while True:
        is_late = time.monotonic() >= deadline
        is_over = is_late and (timeout_fn is None or timeout_fn())
        step = latest_step()  # looked at after `timeout_fn` said that it is over
        if step is not None and step > last:
            yielded = time.monotonic()
            yield step
            last = step
            time.sleep(max(0.0, min_interval_secs - (time.monotonic() - yielded)))
            deadline = _deadline(timeout)
        elif is_over:
            return
        else:
            rest = math.inf if is_late else max(0.0, deadline - time.monotonic())
            time.sleep(min(seconds_to_sleep, rest))


def _deadline(timeout: float | None) -> float:
    return math.inf if timeout is None else time.monotonic() + timeout
