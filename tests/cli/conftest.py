"""Commands run in a folder with config files, good and bad."""

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
    "broken.json": "{",
    "list.json": "[1]",
}


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
        code = cli.main(list(arguments))
        output = capsys.readouterr()
        return code, output.out, output.err

    return run
