"""One job, whose parameters are those of the experiment: `--xp.target=tools/fit.py`."""

from kauldron import konfig

with konfig.imports():
    from kauldron import kxm


def get_config() -> "kxm.Experiment":
    """Return the experiment."""
    return kxm.Experiment(
        jobs={"main": kxm.Job()},
        sweep_info=kxm.SweepFromCfg(),
        subdir_format=kxm.SubdirFormat(
            wu_dirname="{wid}{separator_if_sweep}{sweep_kwargs}"
        ),
    )
