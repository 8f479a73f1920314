"""The tiny Vision Transformer, with augmented images and much of what there is."""

from kauldron import konfig
from tests.older_configs import tiny_vit_imagenet

with konfig.imports():
    import optax
    from jax.experimental import checkify
    from xmanager import xm

    from kauldron import kd, kxm


def get_config():
    cfg = tiny_vit_imagenet.get_config()
    cfg.train_ds.transforms.insert(
        2, kd.contrib.data.RandAugment(image_key="image", num_layers=2, magnitude=15)
    )
    cfg.xm_job = kxm.Job(
        platform="gpu=1", requirements=xm.JobRequirements(ram=8 * 2**30, tmp_ram_fs=4)
    )
    cfg.checkify_error_categories = checkify.all_checks
    cfg.train_metrics |= {
        "attention": kd.metrics.SkipIfMissing(
            kd.metrics.Std(values="interms.encoder.layers_11.attention.attn_weights[0]")
        ),
        "grads": kd.metrics.TreeMap(
            metric=kd.metrics.Norm(tensor="grads.encoder", axis=None)
        ),
        "updates": kd.metrics.TreeReduce(
            metric=kd.metrics.Norm(tensor="updates", aggregation_type="concat")
        ),
    }
    cfg.optimizer = kd.optim.named_chain(
        **{  # noqa: PIE804 (as users write it)
            "clip": optax.clip_by_global_norm(max_norm=1.0),
            "adam": optax.scale_by_adam(b1=0.9),
            "decay": optax.add_decayed_weights(
                weight_decay=1e-4, mask=kd.optim.select("**.kernel")
            ),
            "lr": optax.scale_by_learning_rate(cfg.ref.schedules["learning_rate"]),
        }
    )
    cfg.exporter = kd.export.JaxModelExporter(platforms=["cpu"])
    cfg.profiler = kd.inspect.Profiler(all_host=True)
    cfg.setup.note_template = "batch {cfg.train_ds.batch_size}"
    cfg.evals["standalone"] = kd.evals.Evaluator(
        run=kd.evals.StandaloneEveryCheckpoint(platform="gpu=1"),
        num_batches=None,
        ds=cfg.ref.evals["val"].ds,
    )
    return cfg


def sweep():
    yield from tiny_vit_imagenet.sweep()


def sweep_seed():
    for seed in range(2):
        yield {"seed": seed}
