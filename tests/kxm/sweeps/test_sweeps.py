"""Sweeps from lists, config files, search spaces and the command line."""

import types

import pytest

from kauldron import kxm
from kauldron.kxm import sweeps

SWEEPS = """

def sweep():
    for seed in (0, 1):
        yield {"seed": seed}

def sweep_lr():
    yield {"aux.lr": 1e-3}
    yield {"cfg.aux.lr": 1e-2}

def sweep_model():
    for features in (2, 3):
        yield {"model": nn.Dense(features=features)}

def sweep_scaled(cfg):
    return [{"aux.lr": cfg.aux.lr * factor} for factor in (1, 2)]

def sweep_clash():
    yield {"seed": 7}

sweep_nothing = 3
"""


@pytest.fixture
def chosen(config):
    path = config(sweeps=SWEEPS)

    def items(sweep, **overrides):
        provider = kxm.ConfigProvider.from_path(path, overrides=overrides)
        info = kxm.KauldronSweep(sweep=sweep, cfg_provider=provider)
        return [dict(item.xm_ui_kwargs) for item in info]

    return items


@pytest.mark.parametrize("sweep", [True, "", [""]])
def test_the_default_sweep(chosen, sweep):
    assert chosen(sweep) == [{"seed": 0}, {"seed": 1}]


def test_named_sweeps_and_products_with_the_last_varying_fastest(chosen):
    assert chosen("lr") == [{"aux.lr": 1e-3}, {"aux.lr": 1e-2}]
    expected = [
        {"aux.lr": 1e-3, "seed": 0},
        {"aux.lr": 1e-3, "seed": 1},
        {"aux.lr": 1e-2, "seed": 0},
        {"aux.lr": 1e-2, "seed": 1},
    ]
    assert chosen("lr,") == expected
    assert chosen(["lr", ""]) == expected


def test_config_nodes_are_shown_as_calls(chosen):
    assert chosen("model")[0] == {"model": "nn.Dense(features=2)"}


def test_a_function_may_take_the_config(chosen):
    assert chosen("scaled", **{"aux.lr": 0.5}) == [{"aux.lr": 0.5}, {"aux.lr": 1.0}]


def test_star_takes_all_functions_in_the_order_of_definition(config):
    path = config(sweeps="\ndef sweep_b(): yield {'seed': 1}\nsweep_x = 3\n"
                  "def sweep_a(): yield {'aux.lr': 1.}\n")  # fmt: skip
    provider = kxm.ConfigProvider.from_path(path)
    assert sweeps.sweep_names("*", provider.module) == ["b", "a"]


def test_two_functions_that_disagree_are_named(chosen):
    with pytest.raises(ValueError, match=r"'cfg.seed'.*sweep\(\).*sweep_clash\(\)"):
        chosen(",clash")


def test_unknown_names_list_the_available_ones(chosen):
    with pytest.raises(ValueError, match=r"sweep_lrr\(\).*'lr'.*sweep_model"):
        chosen("lrr")


@pytest.mark.parametrize("sweep", [3, [1], 0.5])
def test_other_values_are_refused(chosen, sweep):
    with pytest.raises(ValueError, match="expected True, names"):
        chosen(sweep)


def test_without_a_config_the_flag_is_named():
    with pytest.raises(ValueError, match=r"--cfg=path/to/config\.py"):
        list(kxm.SweepFromCfg(sweep=True))


@pytest.mark.parametrize(
    "body, error, message",
    [
        ("yield 3", TypeError, r"sweep\(\), item 0: expected a dict"),
        ("yield {1: 2}", TypeError, r"sweep\(\), item 0: the key 1"),
        ("return 3", TypeError, r"sweep\(\) gives an int"),
        ("yield from []", ValueError, r"sweep\(\) yields no work units"),
    ],
)
def test_bad_sweep_functions(config, body, error, message):
    path = config(sweeps=f"\ndef sweep():\n    {body}\n")
    provider = kxm.ConfigProvider.from_path(path)
    with pytest.raises(error, match=message):
        list(kxm.SweepFromCfg(sweep=True, cfg_provider=provider))


def test_kauldron_sweep_needs_kauldron_jobs():
    with pytest.raises(TypeError, match="KauldronJobs"):
        kxm.KauldronSweep(sweep=True).replace_with_jobs_provider(kxm.JobsProvider())


def test_simple_sweeps_take_lists_and_functions():
    assert len(kxm.SimpleSweep([{"a": 1}, {"a": 2}])) == 2
    assert [i.job_kwargs for i in kxm.SimpleSweep(lambda: [{"a": 1}])] == [{"a": 1}]
    with pytest.raises(TypeError, match="item 1: expected a dict"):
        kxm.SimpleSweep([{}, 3])
    with pytest.raises(ValueError, match="no items"):
        kxm.SimpleSweep([])


def test_configs_of_all_points(config):
    path = config(sweeps=SWEEPS)
    configs = kxm.sweep_configs(path, "lr,", overrides={"aux.tag": "mine"})
    assert [(c.aux.lr, c.seed, c.aux.tag) for c in configs][-1] == (1e-2, 1, "mine")
    assert [c.optimizer.learning_rate for c in configs] == [1e-3, 1e-3, 1e-2, 1e-2]


def test_arguments_of_the_config_can_be_swept(tmp_path):
    module = types.ModuleType("my_config")
    exec(
        "import dataclasses\nfrom kauldron import konfig\n"
        "@dataclasses.dataclass\nclass ConfigArgs:\n    n: int = 1\n"
        "def get_config(args):\n"
        "    return konfig.ConfigDict({'twice': 2 * args.n, 'x': 0})\n"
        "def sweep():\n    yield {'__args__.n': 3, 'x': 1}\n",
        vars(module),
    )
    [cfg] = kxm.sweep_configs(module)
    assert (cfg.twice, cfg.x) == (6, 1)


#
# Grid and random search
#


def test_grids_are_products_with_the_last_varying_fastest():
    space = {
        "a": kxm.Range(1, 2),
        "b": kxm.Range(0.0, 0.3, step=0.1),
        "c": kxm.Choice(["x"]),
        "d": 5,
    }
    values = [tuple(i.job_kwargs.values()) for i in kxm.Search(space, method="grid")]
    assert len(values) == 8
    assert values[:2] == [(1, 0.0, "x", 5), (1, 0.1, "x", 5)]
    assert values[3] == (1, 0.3, "x", 5)


def test_random_trials_stay_when_more_are_added():
    space = {"lr": kxm.Range(1e-5, 1e-2, log=True), "n": kxm.Range(1, 9)}
    few = [i.job_kwargs for i in kxm.Search(space, num_trials=3, seed=1)]
    many = [i.job_kwargs for i in kxm.Search(space, num_trials=20, seed=1)]
    assert many[:3] == few
    assert [i.job_kwargs for i in kxm.Search(space, num_trials=3, seed=2)] != few
    assert all(1e-5 <= v["lr"] <= 1e-2 and v["n"] in range(1, 10) for v in many)
    assert min(v["lr"] for v in many) < 1e-4 < 1e-3 < max(v["lr"] for v in many)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: kxm.Range(2, 1), "more than"),
        (lambda: kxm.Range(0.0, 1.0, log=True), "positive low"),
        (lambda: kxm.Range(0, float("nan")), "not finite"),
        (lambda: kxm.Range(0, 4, step=0), "step must be positive"),
        (lambda: kxm.Choice([]), "list of options"),
        (lambda: kxm.Search({}, num_trials=1), "nothing to vary"),
        (lambda: kxm.Search({"a": 1}), "needs num_trials"),
        (
            lambda: kxm.Search({"a": 1}, method="grid", num_trials=3),
            "leave out num_trials",
        ),
        (lambda: kxm.Search({"a": kxm.Range(0.0, 1.0)}, method="grid"), "step="),
        (lambda: kxm.Search({"a": 1}, method="gird"), "Did you mean 'grid'"),
        (lambda: kxm.Search({"a": 1}, method="tpe", num_trials=2), "give metric="),
        (lambda: kxm.Search({"a": 1}, num_trials=2, goal="low"), "goal="),
        (lambda: kxm.Search({"a": 1}, num_trials=2, prune="asha"), "adaptive"),
    ],
)
def test_bad_spaces_are_errors_at_construction(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_sweep_function_may_return_a_search(config):
    path = config(
        sweeps="""
def sweep():
    return kxm.Search({"seed": kxm.Choice([1, 2]),
                       "optimizer": kxm.Choice([optax.sgd(0.1)])}, method="grid")
"""
    )
    configs = kxm.sweep_configs(path)
    assert [c.seed for c in configs] == [1, 2]
    assert configs[0].optimizer.__qualname__ == "optax:sgd"


#
# The command line
#


@pytest.mark.parametrize(
    "text, values",
    [
        ("1e-3,3e-3", [1e-3, 3e-3]),
        ("0:4", [0, 1, 2, 3]),
        ("0:10:5", [0, 5]),
        ("5:0:-2", [5, 3, 1]),
        ("0:1:0.25", [0.0, 0.25, 0.5, 0.75]),
        ("0:1:lin3", [0.0, 0.5, 1.0]),
        ("1e-4:1e-1:log4", [1e-4, 1e-3, 1e-2, 1e-1]),
        ("1:100:log=3", [1.0, 10.0, 100.0]),
        ("0:2,7", [0, 1, 7]),
        ("adam,sgd", ["adam", "sgd"]),
        ("'1','2'", ["1", "2"]),
        ("[1,2],[3]", [[1, 2], [3]]),
        ("'0:',gs://a/b,linear", ["0:", "gs://a/b", "linear"]),
        ("true,None", [True, None]),
        ("train[:80%],test", ["train[:80%]", "test"]),
        ("py::optax.adam(1, 2),py::optax.sgd(1)", ["py::optax.adam(1, 2)", "py::optax.sgd(1)"]),
    ],
)  # fmt: skip
def test_values_of_sweep_flags(text, values):
    parsed = sweeps.parse_values(text)
    assert parsed == values
    assert [type(v) for v in parsed] == [type(v) for v in values]


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "missing"),
        ("1,,2", "missing"),
        ("4:0", "empty"),
        ("0:4:0", "must not be 0"),
        ("0.1:0.5", "needs a step or a count"),
        ("0:1:log3", "positive ends"),
        ("1:2:lin1", "at least lin2"),
        ("log:1e-3:1e-1:3", "'log:1e-3:1e-1:3' is not a range.*1e-4:1e-1:log4"),
        ("0:4:5:6", "is not a range"),
        ("0:", "is not a range"),
    ],
)
def test_bad_values_of_sweep_flags(text, message):
    with pytest.raises(ValueError, match=message):
        sweeps.parse_values(text)


def test_sweep_flags_make_a_product_with_the_last_varying_fastest():
    info = sweeps.sweep_from_flags(["--sweep.cfg.a=1,2", "--sweep.seed=0:2"])
    items = [dict(item.job_kwargs) for item in info]
    assert items[:2] == [{"cfg.a": 1, "cfg.seed": 0}, {"cfg.a": 1, "cfg.seed": 1}]
    assert len(items) == 4


@pytest.mark.parametrize("flags", [["--sweep.a"], ["--sweep.a=1", "--sweep.cfg.a=2"]])
def test_bad_sweep_flags(flags):
    with pytest.raises(ValueError, match=r"--sweep\.a"):
        sweeps.sweep_from_flags(flags)


def test_a_part_that_would_be_undone_is_refused():
    flags = ["--sweep.optimizer.learning_rate=0.1,0.2", "--sweep.optimizer=a,b"]
    assert len(list(sweeps.sweep_from_flags(flags[::-1]))) == 4
    message = "cfg.optimizer replaces cfg.optimizer.learning_rate"
    with pytest.raises(ValueError, match=message):
        list(sweeps.sweep_from_flags(flags))
    space = {"optimizer.learning_rate": kxm.Range(0.1, 0.2), "optimizer": "a"}
    with pytest.raises(ValueError, match=message):
        kxm.Search(space, method="tpe", num_trials=2, metric="m").with_prefix("cfg.")
    other = [{"model.width": 1, "model": "big"}]  # flags of a program that knows both
    assert len(kxm.SimpleSweep(other)) == 1


def test_configs_of_a_sweep_in_a_notebook(config, capsys):
    from kauldron.konfig.overrides import config_files
    from kauldron.utils import colab

    module = config_files.load_module(config(sweeps=SWEEPS), "my_config")
    for mode, seeds in ((colab.SweepMode.ALL, [0, 1]), ("first", [0])):
        configs = colab.iter_sweep_configs(
            module=module, sweep_mode=mode, sweep_name=""
        )
        assert [cfg.seed for cfg in configs] == seeds
        assert len(capsys.readouterr().out.splitlines()) == len(seeds)
    [cfg] = colab.iter_sweep_configs(
        module=module, sweep_mode=colab.SweepMode.NONE, sweep_name="lr"
    )
    assert cfg == module.get_config()
