"""Commands run in a folder with config files, good and bad."""

import shutil
import textwrap

import pytest

from kauldron import cli

FILES = {
    "good.py": """
        from kauldron import konfig

        with konfig.imports():
            import fractions

        def get_config():
            cfg = konfig.ConfigDict({
                "seed": 42,
                "rate": 1e-3,
                "name": "mnist",
                "debug": False,
                "sizes": [8, 16],
                "ratio": fractions.Fraction(numerator=1, denominator=3),
                "nested": {"n": 1},
            })
            cfg.twice = cfg.ref.seed * 2
            return cfg
    """,
    "required.py": """
        from kauldron import konfig

        def get_config():
            return konfig.ConfigDict({"a": {"n": konfig.required(int)}})
    """,
    "cycle.py": """
        from kauldron import konfig

        def get_config():
            cfg = konfig.ConfigDict({"a": {}})
            cfg.a.b = cfg
            return cfg
    """,
    "args.py": """
        import dataclasses

        @dataclasses.dataclass
        class ConfigArgs:
            layers: int = 2

        def get_config(args):
            return {"layers": args.layers}
    """,
    "syntax_error.py": "def get_config(:\n    pass\n",
    "no_entry.py": "def get_confg():\n    return {}\n",
    "no_return.py": "def get_config():\n    cfg = {}\n",
    "name_error.py": "def get_config():\n    return undefined_name\n",
    "real_object.py": """
        import fractions
        from kauldron import konfig

        def get_config():
            cfg = konfig.ConfigDict({"a": {}})
            cfg.a.ratio = fractions.Fraction(1, 3)
            return cfg
    """,
    "missing_module.py": """
        from kauldron import konfig

        with konfig.imports():
            import no_such_package_at_all

        def get_config():
            return konfig.ConfigDict({"x": no_such_package_at_all.f()})
    """,
    "wrong_name.py": """
        from kauldron import konfig

        with konfig.imports():
            import fractions

        def get_config():
            return konfig.ConfigDict({"x": {"y": fractions.Fracton(1)}})
    """,
    "toy.py": """
        import numpy

        from kauldron import konfig

        with konfig.imports():
            import optax
            from flax import linen as nn

            from kauldron import kd

            import cfg_config

        def arrays():
            x = numpy.random.default_rng(0).normal(size=(64, 4)).astype("float32")
            return {"x": x, "y": x[:, :2] * 2}

        def make_ds(**kwargs):
            return kd.data.py.Arrays(cfg_config.arrays(), batch_size=16, **kwargs)

        def get_config():
            cfg = kd.train.Trainer()
            cfg.num_train_steps = 4
            cfg.log_metrics_every = 2
            cfg.profiler = None
            cfg.train_ds = make_ds(shuffle=True, num_epochs=None)
            cfg.eval_ds = make_ds(shuffle=False, num_epochs=1)
            cfg.model = kd.nn.Sequential(
                inputs="batch.x", outputs="y", layers=[nn.Dense(2)]
            )
            cfg.train_losses = {
                "l2": kd.losses.L2(preds="preds.y", targets="batch.y")
            }
            cfg.train_metrics = {"norm": kd.metrics.Norm(tensor="preds.y")}
            cfg.optimizer = optax.adam(1e-2)
            cfg.checkpointer = kd.ckpts.Checkpointer(save_interval_steps=2)
            cfg.evals = {
                "test": kd.evals.Evaluator(
                    run=kd.evals.EveryNSteps(2), num_batches=None
                ),
                "alone": kd.evals.Evaluator(
                    run=kd.evals.StandaloneLastCheckpoint(), num_batches=1
                ),
            }
            return cfg
    """,
    "broken.json": "{",
    "list.json": "[1]",
}


# An evaluator that stops the run at step 2, in the way that it is told.
FILES["stopping.py"] = (
    FILES["toy.py"]
    + """
        import signal

        from kauldron.evals import EvaluatorBase

        class Stop(EvaluatorBase):
            how: str

            def evaluate(self, state, step):
                if self.how == "error":
                    raise RuntimeError("out of coffee")
                signal.raise_signal(getattr(signal, self.how))

        get_toy = get_config

        def get_config():
            cfg = get_toy()
            cfg.evals = {"stop": cfg_config.Stop(run=kd.evals.Once(2), how="error")}
            return cfg
    """
)

# Wrong in four places.
FILES["problems.py"] = (
    FILES["toy.py"]
    + """
        get_toy = get_config

        def get_config():
            cfg = get_toy()
            cfg.model.layers = [nn.Dense(3)]
            cfg.train_metrics = {"a": {"b": kd.metrics.Norm(tensor="preds.z")}}
            cfg.train_summaries = {"s": kd.metrics.Norm(tensor="batch.imgae")}
            cfg.evals.test.metrics = {"m": kd.metrics.Norm(tensor="grads")}
            return cfg
    """
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with config files in it."""
    for name, source in FILES.items():
        (tmp_path / name).write_text(textwrap.dedent(source))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def kauldron(folder, capsys):
    """Runs a command in this process; gives exit code, output and errors."""

    def run(*arguments):
        capsys.readouterr()
        code = cli.main(list(map(str, arguments)))
        output = capsys.readouterr()
        return code, output.out, output.err

    return run


@pytest.fixture
def run(finished, tmp_path):
    """The run that the module calls `finished`, moved to another place."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def cfg(folder):
    """The toy config."""
    from kauldron.cli.loading import load_config, source_from_arguments

    source, _ = source_from_arguments(["--cfg=toy.py"], "cfg")
    return load_config(source, import_nothing=True)
