"""Module paths that other code and pickles name, and the modules that they mean now."""

import sys

from kauldron.kontext import annotations, keys, paths, search

annotate = keys
filter_utils = search
glob_paths = paths
path_parser = paths
type_utils = annotations

for _name in ("annotate", "filter_utils", "glob_paths", "path_parser", "type_utils"):
    sys.modules[f"kauldron.kontext.{_name}"] = globals()[_name]
