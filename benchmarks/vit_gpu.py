"""`trainer.train()` of a ViT-B/16 against a bare loop; how long it takes to initialise.

Batches of 128 random pictures of 224 x 224, computed in bf16, parameters and Adam in fp32:
the time goes into arithmetic. The limit is one jitted call per step, on a batch that is
on the device. Then the same with pictures that travel there in every step: from the memory
of the host, and from JPEG files of 500 x 375, cropped and flipped (`num_workers="auto"`).
"""

import argparse
import dataclasses
import pathlib
import statistics
import tempfile
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from figures import show
from PIL import Image

from kauldron import kd, writers


def make_model(variant):
    """Return the model of `examples/vit_b16.py`."""
    return kd.nn.MixedPrecision(
        model=kd.nn.Vit(
            encoder=kd.nn.VitEncoder.from_variant_str(
                variant, prepend_cls_token=True, encoder_norm=nn.LayerNorm()
            ),
            mode="cls_token",
            has_pre_logits=False,
            image="batch.image",
        )
    )


TO_UNIT = kd.data.ValueRange(key="image", vrange=(0, 1))


def in_memory(images, labels, batch, **kwargs):
    return kd.data.py.Arrays(
        {"image": images, "label": labels},
        shuffle=True,
        batch_size=batch,
        transforms=[TO_UNIT],
        **kwargs,
    )


def make_files(root, count):
    """Write pictures of 500 x 375 for ten classes: large forms and some noise."""
    rng = np.random.default_rng(0)
    for number in range(count):
        folder = root / f"class{number % 10}"
        folder.mkdir(exist_ok=True)
        forms = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        picture = np.asarray(Image.fromarray(forms).resize((500, 375)), np.float32)
        picture += rng.normal(0, 8, picture.shape).astype(np.float32)
        pixels = np.clip(picture, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:05}.jpg", quality=90)


def in_files(folder, size, batch):
    return kd.data.py.ImageFolder(
        folder,
        shuffle=True,
        batch_size=batch,
        num_workers="auto",
        transforms=[
            kd.data.Elements(keep=["image", "label"]),
            kd.data.py.InceptionCrop(
                key="image", resize_size=(size, size), area_range=(0.08, 1.0)
            ),
            kd.data.py.RandomFlipLeftRight(key="image"),
            TO_UNIT,
            kd.data.Rearrange(key="label", pattern="-> 1"),
        ],
    )


def make_trainer(model, train_ds, steps):
    return kd.train.Trainer(
        workdir=tempfile.mkdtemp(),
        train_ds=train_ds,
        model=model,
        train_losses={
            "xent": kd.losses.SoftmaxCrossEntropyWithIntLabels(
                logits="preds.logits", labels="batch.label"
            )
        },
        optimizer=optax.adam(1e-4),
        num_train_steps=steps,
        log_metrics_every=max(steps // 2, 1),
    )


def train_seconds(trainer, train_ds, steps):
    """Seconds of `steps` steps on the clock, and which part of them waits for data."""
    trainer = dataclasses.replace(  # compiled once for all rounds; that is not measured
        trainer,
        workdir=tempfile.mkdtemp(),
        train_ds=train_ds,
        num_train_steps=2 * steps + 1,
    )
    trainer.train()
    lines = list(writers.read_scalars(trainer.workdir / "train"))
    times = {line["step"]: line["time"] for line in lines}
    waits = {
        line["step"]: line["values"]["perf_stats/data_wait_fraction"]
        for line in lines
        if "perf_stats/data_wait_fraction" in line["values"]
    }
    return times[2 * steps] - times[steps], waits.get(2 * steps, 0.0)


def make_bare_loop(model, images, labels, batch):
    optimizer = optax.adam(1e-4)
    image = jnp.asarray(images[:batch])
    label = jnp.asarray(labels[:batch])[:, 0]

    def step(state, image):
        def loss(params):
            logits = model.apply(params, image.astype(jnp.float32) / 255)["logits"]
            return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()

        params, opt_state = state
        grads = jax.grad(loss)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    step = jax.jit(step, donate_argnums=0)

    def seconds(start_params, steps):
        state = (start_params, jax.jit(optimizer.init)(start_params))
        for _ in range(3):
            state = step(state, image)
        jax.block_until_ready(state)
        start = time.perf_counter()
        for _ in range(steps):
            state = step(state, image)
        jax.block_until_ready(state)
        return time.perf_counter() - start

    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if args.tiny:
        model = make_model("mu/16")
        batch, size, steps, rounds, num_files = 2, 32, 1, 1, 4
    else:
        model = make_model("B/16")
        batch, size, steps, rounds = 128, 224, args.steps, args.rounds
        num_files = 16 * batch
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (4 * batch, size, size, 3), dtype=np.uint8)
    labels = rng.integers(0, 1000, (4 * batch, 1), dtype=np.int32)

    train_ds = in_memory(images, labels, batch)
    trainer = make_trainer(model, train_ds, steps)
    trainer.train_ds.element_spec  # noqa: B018, reads a record
    start = time.perf_counter()
    state = jax.block_until_ready(trainer.init_state())
    init_seconds = time.perf_counter() - start
    copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))
    params = copy({"params": state.params})
    del state
    device = jax.devices()[0].device_kind
    show(
        "vit_gpu/init_seconds", init_seconds, unit="s", digits=2, device=device, goal=15
    )
    bare_loop = make_bare_loop(model, images, labels, batch)
    with tempfile.TemporaryDirectory() as folder:
        make_files(pathlib.Path(folder), num_files)
        kinds = {
            "": train_ds,
            "_from_memory": in_memory(images, labels, batch, device_resident=False),
            "_from_files": in_files(folder, size, batch),
        }
        speeds = {name: [] for name in (*kinds, "bare")}
        waits = {name: [] for name in kinds}
        for _ in range(rounds):
            for name, ds in kinds.items():
                seconds, wait = train_seconds(trainer, ds, steps)
                speeds[name].append(batch * steps / seconds)
                waits[name].append(wait)
            seconds = bare_loop(copy(params), steps)
            speeds["bare"].append(batch * steps / seconds)
    medians = {name: statistics.median(found) for name, found in speeds.items()}
    limits = {"": ("bare", 0.99), "_from_memory": ("", 0.99)}
    limits["_from_files"] = ("_from_memory", 0.95)
    for name, (limit, goal) in limits.items():
        show(
            f"vit_gpu/images_per_second{name}",
            medians[name],
            medians[limit],
            unit="images/s",
            digits=1,
            device=device,
            data_wait_fraction=round(statistics.median(waits[name]), 3),
            goal=goal,
        )


if __name__ == "__main__":
    main()
