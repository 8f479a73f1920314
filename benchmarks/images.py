"""Images from JPEG files: decode, random crop to 224, random flip, batches of 128.

Ours without workers and with many, against the bare cost of Pillow and, where they are
installed, against torch's DataLoader with torchvision. The script makes the files. The
cost of one image is measured in CPU time, the rest on the clock: let nothing else run.

A second part reads arrays out of a Python object, where nothing but copying is to be
done: how much batches cost on their way from a worker, and how much memory workers need.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import pathlib
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from figures import show
from PIL import Image

from kauldron import kd

AREA = (0.08, 1.0)  # torchvision's


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    num_files: int = 3000
    batch: int = 128
    crop: int = 224
    repeats: int = 5
    num_arrays: int = 2048


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="a quick look")
    parser.add_argument("--workers", type=int, help="how many (default: cores - 2)")
    args = parser.parse_args()
    sizes = Sizes(8, 4, 32, 1, 16) if args.tiny else Sizes()
    cores = len(os.sched_getaffinity(0))
    num_workers = args.workers or (1 if args.tiny else max(2, cores - 2))
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        make_files(root, sizes.num_files)
        report_inline(root, sizes)
        report_default(root, sizes)
        report_workers(root, sizes, num_workers)
    report_arrays(sizes, num_workers)


# ----------------------------------------------------------------------------
# JPEG files
# ----------------------------------------------------------------------------


def make_files(root: pathlib.Path, count: int) -> None:
    """Write pictures of 500 x 375: large forms and some noise, as photographs have."""
    rng = np.random.default_rng(0)
    for number in range(count):
        folder = root / f"class{number % 10}"
        folder.mkdir(exist_ok=True)
        forms = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        picture = np.asarray(Image.fromarray(forms).resize((500, 375)), np.float32)
        picture += rng.normal(0, 8, picture.shape).astype(np.float32)
        pixels = np.clip(picture, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:05}.jpg", quality=90)


def our_files(root: pathlib.Path, sizes: Sizes, **kwargs: Any) -> kd.data.Pipeline:
    return kd.data.py.ImageFolder(
        root,
        shuffle=True,
        seed=0,
        batch_size=sizes.batch,
        transforms=[
            kd.data.Elements(drop=["path"]),
            kd.data.py.InceptionCrop(
                key="image", resize_size=(sizes.crop, sizes.crop), area_range=AREA
            ),
            kd.data.py.RandomFlipLeftRight(key="image"),
        ],
        **kwargs,
    )


def bare_pillow(root: pathlib.Path, sizes: Sizes) -> Iterator[np.ndarray]:
    """Decode, crop, resize and flip with Pillow, and nothing besides."""
    files = sorted(root.glob("*/*.jpg"))
    rng = np.random.default_rng(0)
    crop = kd.data.py.InceptionCrop(key="image", area_range=AREA)
    size = (sizes.crop, sizes.crop)
    while True:
        batch = np.empty((sizes.batch, *size, 3), np.uint8)
        for row in range(sizes.batch):
            content = files[rng.integers(len(files))].read_bytes()
            image = Image.open(io.BytesIO(content))
            rows, columns = crop._draw_box(image.height, image.width, rng)
            top, bottom, _ = rows.indices(image.height)
            left, right, _ = columns.indices(image.width)
            piece = image.crop((left, top, right, bottom))
            piece = piece.resize(size, Image.Resampling.BILINEAR)
            if rng.integers(2):
                piece = piece.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
            batch[row] = piece
        yield batch


def torch_files(root: pathlib.Path, sizes: Sizes, num_workers: int) -> Any:
    """Return what torch users write, `None` where it is not installed."""
    try:
        import torch
        import torchvision
        from torchvision.transforms import v2
    except ImportError:
        return None
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(sizes.crop, scale=AREA, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.PILToTensor(),
        ]
    )
    data = torchvision.datasets.ImageFolder(root, transform)
    sampler = torch.utils.data.RandomSampler(  # endless
        data, replacement=True, num_samples=10**7
    )
    return torch.utils.data.DataLoader(
        data, batch_size=sizes.batch, sampler=sampler, num_workers=num_workers
    )


def report_inline(root: pathlib.Path, sizes: Sizes) -> None:
    """CPU time per image in one process: ours, bare Pillow, torch."""
    runs = {
        "ours": iter(our_files(root, sizes, prefetch_batches=0)),
        "pillow": bare_pillow(root, sizes),
    }
    loader = torch_files(root, sizes, 0)
    if loader is not None:
        runs["torch"] = iter(loader)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(sizes.repeats + 1):  # the first round warms up
        for name, batches in runs.items():
            # Of this thread: those of torch's libraries go on spinning for a while.
            start = time.thread_time()
            next(batches)
            seconds[name].append(time.thread_time() - start)
    rate = {n: sizes.batch / statistics.median(s[1:]) for n, s in seconds.items()}
    unit = "images/s of CPU time"
    report("images/inline", rate["ours"], rate["pillow"], f"{unit} (limit: Pillow)")
    if "torch" in rate:
        report(
            "images/inline_torch",
            rate["ours"],
            rate["torch"],
            f"{unit} (limit: torch without workers)",
        )


def report_default(root: pathlib.Path, sizes: Sizes) -> None:
    """Images per second on the clock, without workers, as both come."""
    ours, _ = speed(lambda: iter(our_files(root, sizes)), sizes, 4)
    if torch_files(root, sizes, 0) is None:
        limit, _ = speed(lambda: bare_pillow(root, sizes), sizes, 4)
        report("images/default", ours, limit, "images/s (limit: Pillow)")
        return
    torch, _ = speed(lambda: iter(torch_files(root, sizes, 0)), sizes, 4)
    unit = "images/s (limit: torch without workers)"
    report("images/default_torch", ours, torch, unit)


def report_workers(root: pathlib.Path, sizes: Sizes, num_workers: int) -> None:
    """Images per second on the clock, with one worker and with many."""
    files = lambda workers: our_files(root, sizes, num_workers=workers)  # noqa: E731
    one, _ = speed(lambda: iter(files(1)), sizes, 1)
    many, first = speed(lambda: iter(files(num_workers)), sizes, num_workers)
    report(
        f"images/workers_{num_workers}",
        many,
        num_workers * one,
        f"images/s (limit: {num_workers} times one worker)",
    )
    chosen, _ = speed(lambda: iter(files("auto")), sizes, num_workers)
    report("images/auto", chosen, many, f"images/s (limit: {num_workers} workers)")
    if torch_files(root, sizes, num_workers) is None:
        report(f"images/first_batch_{num_workers}", first, None, "s")
        return
    torch, torch_first = speed(
        lambda: iter(torch_files(root, sizes, num_workers)), sizes, num_workers
    )
    unit = "images/s (limit: torch's DataLoader)"
    report(f"images/workers_{num_workers}_torch", many, torch, unit)
    report(
        f"images/first_batch_{num_workers}", first, torch_first, "s (limit: torch's)"
    )


def speed(
    start: Callable[[], Any], sizes: Sizes, num_workers: int
) -> tuple[float, float]:
    """Return images per second once it runs, and seconds to the first batch."""
    began = time.perf_counter()
    batches = start()
    next(batches)
    first = time.perf_counter() - began
    for _ in range(2 * num_workers):  # what was ready before anybody asked
        next(batches)
    began = time.perf_counter()
    count = sizes.repeats * num_workers
    for _ in range(count):
        next(batches)
    seconds = time.perf_counter() - began
    if hasattr(batches, "close"):
        batches.close()
    return count * sizes.batch / seconds, first


# ----------------------------------------------------------------------------
# Arrays of a Python object
# ----------------------------------------------------------------------------


class Pictures:
    """Pictures in memory, given out one by one."""

    def __init__(self, count: int):
        rng = np.random.default_rng(0)
        self.pixels = rng.integers(0, 256, (count, 256, 256, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"image": self.pixels[index], "label": index % 10}


def report_arrays(sizes: Sizes, num_workers: int) -> None:
    """Crop, flip and scale arrays; send uint8 and float32 batches from workers."""
    source = Pictures(sizes.num_arrays)
    transforms = [
        kd.data.py.RandomCrop(key="image", shape=(sizes.crop, sizes.crop, None)),
        kd.data.py.RandomFlipLeftRight(key="image"),
    ]
    scale = kd.data.ValueRange(key="image", vrange=(0, 1))
    for name, chain in (("uint8", transforms), ("float32", [*transforms, scale])):
        ds = kd.data.py.DataSource(
            source, shuffle=True, seed=0, batch_size=sizes.batch, transforms=chain
        )
        inline, _ = speed(lambda: iter(ds), sizes, 1)  # noqa: B023
        shared = dataclasses.replace(ds, num_workers=num_workers)
        began = time.perf_counter()
        with iter(shared) as batches:
            next(batches)
            first = time.perf_counter() - began
            for _ in range(3 * num_workers):  # every slot has been used
                next(batches)
            start, cpu = time.perf_counter(), time.thread_time()
            count = sizes.repeats * num_workers * sizes.batch
            for _ in range(sizes.repeats * num_workers):
                next(batches)
            rate = count / (time.perf_counter() - start)
            transport = (time.thread_time() - cpu) / count * 1e3
            memory = [
                own_memory(w._process.pid) for w in batches.iter._executor._workers
            ]
        unit = "images/s (limit: without workers)"
        report(f"arrays/workers_{num_workers}_{name}", rate, inline, unit)
        report(f"arrays/transport_{name}", transport, 0.01, "ms/image in the parent")
        report(f"arrays/first_batch_{name}", first, None, "s")
        report(
            f"arrays/worker_memory_{name}",
            max(memory),
            source.pixels.nbytes / 2**20,
            "MiB of a worker's own (limit: the source)",
        )


def own_memory(pid: int) -> float:
    """MiB that a process shares with nobody."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Anonymous:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def report(name: str, ours: float, limit: float | None, unit: str) -> None:
    show(name, ours, limit, unit=unit, digits=4)


if __name__ == "__main__":
    main()
