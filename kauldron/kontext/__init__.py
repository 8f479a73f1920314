"""Paths into nested trees, and objects that name their inputs by paths.

A *path* says where a value is: `preds.cameras[0].pos`. A *key* is a field of an object
that holds a path; its name is the name of the call argument to fill.
"""

# ruff: noqa: I001 (in the order a reader wants)

# Paths, and what they point to.
from kauldron.kontext.paths import Path as Path
from kauldron.kontext.paths import GlobPath as GlobPath
from kauldron.kontext.paths import get_by_path as get_by_path
from kauldron.kontext.search import set_by_path as set_by_path
from kauldron.kontext.search import replace_by_path as replace_by_path
from kauldron.kontext.search import filter_by_path as filter_by_path
from kauldron.kontext.search import iter_by_path as iter_by_path
from kauldron.kontext.search import path_matches as path_matches
from kauldron.kontext.flat_trees import flatten_with_path as flatten_with_path
from kauldron.kontext.flat_trees import unflatten_with_path as unflatten_with_path

# Keys.
from kauldron.kontext.keys import Key as Key
from kauldron.kontext.keys import KeyTree as KeyTree
from kauldron.kontext.keys import REQUIRED as REQUIRED
from kauldron.kontext.keys import Context as Context
from kauldron.kontext.keys import get_keypaths as get_keypaths
from kauldron.kontext.keys import is_key_annotated as is_key_annotated
from kauldron.kontext.keys import resolve_from_keyed_obj as resolve_from_keyed_obj
from kauldron.kontext.keys import resolve_from_keypaths as resolve_from_keypaths

# Writing paths in configs.
from kauldron.kontext.path_builder import path_builder_from as path_builder_from

# Errors.
from kauldron.kontext.errors import MissingKeysError as MissingKeysError
from kauldron.kontext.errors import PathNotFoundError as PathNotFoundError
from kauldron.path_grammar import PathSyntaxError as PathSyntaxError

# Modules that code refers to by name, some of them under older names.
from kauldron.kontext import path_builder as path_builder
from kauldron.kontext import paths as paths
from kauldron.kontext import compat as compat

from kauldron.lazy_namespace import suggest_names as _suggest_names

_suggest_names(__name__)
