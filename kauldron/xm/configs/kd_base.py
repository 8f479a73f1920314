"""The jobs and sweeps of a trainer's config, given as `--cfg=`."""

from kauldron import konfig

with konfig.imports():
    from kauldron import kxm


def get_config() -> "kxm.Experiment":
    """Return the experiment."""
    return kxm.Experiment(
        jobs_provider=kxm.KauldronJobs(),
        sweep_info=kxm.KauldronSweep(),
        subdir_format=kxm.SubdirFormat(
            wu_dirname="{wid}{separator_if_sweep}{sweep_kwargs}"
        ),
    )
