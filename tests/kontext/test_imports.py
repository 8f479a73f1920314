"""kontext is a library of its own, on the standard library alone."""

import subprocess
import sys

_SCRIPT = """
import sys
from kauldron import kontext
tree = {"a": {"b": [1, {"c": 2}]}}
assert kontext.get_by_path(tree, "a.b[1].c") == 2
assert kontext.set_by_path(tree, "**.c", 3) == ["a.b[1].c"]
assert kontext.flatten_with_path(tree) == {"a.b[0]": 1, "a.b[1].c": 3}
assert kontext.filter_by_path(tree, "a.b[0]") == {"a": {"b": [1]}}
class Loss:
    x: kontext.Key = ("a.b[0]", "a.b[1].c")
assert kontext.resolve_from_keyed_obj(tree, Loss()) == {"x": (1, 3)}
roots = {name.split(".")[0] for name in sys.modules}
others = roots & {"jax", "numpy", "flax", "tensorflow", "ml_collections", "optax", "etils"}
own = {name for name in sys.modules if name.startswith("kauldron.")}
own -= {name for name in own if name.startswith("kauldron.kontext")}
own -= {name for name in own if "__newer__" in vars(sys.modules[name])}
print(sorted(others), sorted(own))
"""


def test_kontext_works_without_loading_any_other_library():
    result = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True
    )
    floor = ["compat", "errors", "lazy_namespace", "path_grammar"]
    assert result.stdout.strip() == f"[] {[f'kauldron.{name}' for name in floor]}"
