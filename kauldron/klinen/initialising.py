"""`init_bind`: from a module to a bound model."""

from __future__ import annotations

from typing import Any, TypeVar

import flax.errors
import flax.linen as nn
from flax.core import freeze

from kauldron.klinen import errors, rng_keys
from kauldron.klinen.bound_class import bind
from kauldron.klinen.coded_leaves import CodedTree
from kauldron.klinen.definitions import Blueprint, copy_definition
from kauldron.klinen.init_arguments import make_examples
from kauldron.klinen.intermediate_fields import COLLECTION
from kauldron.klinen.method_calls import Method, call_method
from kauldron.klinen.module import Module
from kauldron.klinen.root import Root
from kauldron.klinen.training_mode import use_mode
from kauldron.klinen.view import View

_M = TypeVar("_M", bound=Module)


def init_bind(
    module: _M,
    rng: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    streams: tuple[str, ...],
    method: Method,
) -> _M:
    """See `Module.init_bind`."""
    streams = rng_keys.check_streams(streams)
    rngs = rng_keys.init_rngs(rng, streams)
    args, kwargs = make_examples(args, kwargs)
    definition = copy_definition(module)

    def call(scoped: nn.Module) -> None:
        try:
            call_method(scoped, method, args, kwargs)
        except errors.MissingRngError:
            raise  # of another model, called inside this one
        except flax.errors.InvalidRngError as error:
            raise errors.missing_init_rng(error, rngs) from error

    with use_mode(True):
        variables = dict(nn.init(call, definition)(rngs))
    variables.pop(COLLECTION, None)
    params = freeze(variables.pop("params", {}))
    root = Root(
        blueprint=Blueprint(definition),
        params=params,
        collections=CodedTree({name: freeze(v) for name, v in variables.items()}),
        rngs=CodedTree({}),
        training=True,
        streams=streams,
    )
    return bind(View(root=root, location=(), path=(), definition=definition))
