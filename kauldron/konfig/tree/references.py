"""References: values of a config that are computed from other values when read.

* `PathReference`: `cfg.ref.a.b[0]`, follows a path from a node.
* `Operation`: an operator, call or `ref_fn` applied to references and values.

They are never changed after construction: writing to a field that holds one replaces
it in that field. What is written through is a `Variable` (see `placeholders.py`).
"""

from __future__ import annotations

import contextlib
import copy
import operator
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from ml_collections import FieldReference

from kauldron.errors import ReadableKeyError, did_you_mean, raise_reworded
from kauldron.konfig.errors import CycleError, RequiredValueError
from kauldron.konfig.tree.copying import reroot_when_copied
from kauldron.konfig.tree.history import short_repr
from kauldron.konfig.tree.node import Node, field_expression
from kauldron.path_grammar import format_part


class _Evaluation(threading.local):
    """What this thread is evaluating, outermost first, and whether unset values raise."""

    def __init__(self) -> None:
        self.stack: list[Reference] = []
        self.is_strict = False


_evaluation = _Evaluation()


def is_evaluating() -> bool:
    """Return whether a field is read because another reference needs it."""
    return bool(_evaluation.stack)


@contextlib.contextmanager
def required_values_enforced() -> Iterator[None]:
    """Let reading an unset `required` raise, inside the block."""
    before, _evaluation.is_strict = _evaluation.is_strict, True
    try:
        yield
    finally:
        _evaluation.is_strict = before


def are_required_values_enforced() -> bool:
    """Return whether this thread is inside such a block."""
    return _evaluation.is_strict


def _forward(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *others: Operation(fn, (self, *others))


def _reflected(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: Operation(fn, (other, self))


def _refused(wanted: str) -> Any:
    def method(self: Reference, *_: Any) -> NoReturn:
        raise TypeError(
            f"Cannot {wanted} the reference {self._konfig_text()} while the config is "
            "being written: it has no value yet. Compute it when it is read, with "
            "konfig.ref_fn(lambda value: ..., reference)."
        )

    return method


class Reference(FieldReference):
    """A value that is computed when the field holding it is read.

    Attributes, items, calls and operators give further references. Subclasses define
    `_konfig_evaluate` and `_konfig_text`.
    """

    def __init__(self, **state: Any) -> None:
        self.__dict__.update(state)

    # --------------------------------------------------------------------------------
    # To be defined
    # --------------------------------------------------------------------------------

    def _konfig_evaluate(self) -> Any:
        raise NotImplementedError

    def _konfig_text(self, entry: str = ".ref") -> str:
        """Return its expression; without the entry, the places that it follows."""
        raise NotImplementedError

    # --------------------------------------------------------------------------------
    # The methods of ml_collections' references
    # --------------------------------------------------------------------------------

    def get(self) -> Any:
        """Return the current value."""
        stack = _evaluation.stack
        start = next((i for i, active in enumerate(stack) if active is self), None)
        if start is not None:
            chain = " -> ".join(r._konfig_text() for r in [*stack[start:], self])
            raise CycleError(f"A reference leads back to itself: {chain}")
        stack.append(self)
        try:
            value = self._konfig_evaluate()
        finally:
            stack.pop()
        return value.get() if isinstance(value, FieldReference) else value

    def set(self, value: Any, type_safe: bool = True) -> NoReturn:
        raise AttributeError(
            f"{self._konfig_text()} is read-only. Assign to the field itself."
        )

    def empty(self) -> bool:
        return self.get() is None

    def get_type(self) -> Any:
        return object  # what it evaluates to may change with the config

    def has_cycle(self, visited: Any = None) -> bool:
        return False  # found when it is evaluated

    def identity(self) -> Any:
        """Return a read-only reference to the same value."""
        return Operation(_identity, (self,))

    def attr(self, attr_name: str) -> Any:
        """Return a reference to an attribute of the value."""
        return Operation(getattr, (self, attr_name))

    def to_int(self) -> Any:
        """Return a reference to `int(value)`."""
        return Operation(int, (self,))

    def to_float(self) -> Any:
        """Return a reference to `float(value)`."""
        return Operation(float, (self,))

    def to_str(self) -> Any:
        """Return a reference to `str(value)`."""
        return Operation(str, (self,))

    # --------------------------------------------------------------------------------
    # Lazy operations
    # --------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("__", "_konfig", "_repr_", "_ipython_")):
            raise AttributeError(name)
        return PathReference(self, ((True, name),))

    def __getitem__(self, key: Any) -> Any:
        return PathReference(self, ((False, key),))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return Operation(operator.call, (self, *args), kwargs)

    __add__, __radd__ = _forward(operator.add), _reflected(operator.add)
    __sub__, __rsub__ = _forward(operator.sub), _reflected(operator.sub)
    __mul__, __rmul__ = _forward(operator.mul), _reflected(operator.mul)
    __truediv__ = _forward(operator.truediv)
    __rtruediv__ = _reflected(operator.truediv)
    __floordiv__ = _forward(operator.floordiv)
    __rfloordiv__ = _reflected(operator.floordiv)
    __mod__, __rmod__ = _forward(operator.mod), _reflected(operator.mod)
    __pow__, __rpow__ = _forward(operator.pow), _reflected(operator.pow)
    __and__, __rand__ = _forward(operator.and_), _reflected(operator.and_)
    __or__, __ror__ = _forward(operator.or_), _reflected(operator.or_)
    __xor__, __rxor__ = _forward(operator.xor), _reflected(operator.xor)
    __lshift__, __rlshift__ = _forward(operator.lshift), _reflected(operator.lshift)
    __rshift__, __rrshift__ = _forward(operator.rshift), _reflected(operator.rshift)
    __eq__, __ne__ = _forward(operator.eq), _forward(operator.ne)
    __lt__, __le__ = _forward(operator.lt), _forward(operator.le)
    __gt__, __ge__ = _forward(operator.gt), _forward(operator.ge)
    __neg__, __pos__ = _forward(operator.neg), _forward(operator.pos)
    __abs__, __invert__ = _forward(operator.abs), _forward(operator.invert)
    __round__ = _forward(round)

    # --------------------------------------------------------------------------------
    # What would need the value now
    # --------------------------------------------------------------------------------

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __bool__(self) -> bool:
        raise NotImplementedError(
            f"The reference {self._konfig_text()} has no truth value while the config "
            "is being written. Combine conditions with & and |, or compute the value "
            "with konfig.ref_fn."
        )

    __format__ = __str__ = _refused("format")
    __int__ = __float__ = _refused("convert to a number")
    __index__ = _refused("use as an index")
    __len__ = _refused("take the length of")
    __iter__ = _refused("iterate over")
    __contains__ = _refused("look into")

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(
            f"Cannot set {name!r} on the reference {self._konfig_text()}: references "
            "are read-only. Assign to the config itself (without .ref)."
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"Cannot delete {name!r} of the reference {self._konfig_text()}."
        )

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise TypeError(
            f"Cannot set [{key!r}] on the reference {self._konfig_text()}: references "
            "are read-only. Assign to the config itself (without .ref)."
        )

    def __repr__(self) -> str:
        return f"<reference {self._konfig_text()}>"

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)

    def __copy__(self) -> Reference:
        return self


def _identity(value: Any) -> Any:
    return value


# ------------------------------------------------------------------------------------
# Paths
# ------------------------------------------------------------------------------------

Step = tuple[bool, Any]  # whether it is an attribute access, and its name or key


class PathReference(Reference):
    """`cfg.ref.a.b`: what is found at a path when it is read."""

    _konfig_base: Node | Reference
    _konfig_steps: tuple[Step, ...]

    def __init__(self, base: Node | Reference, steps: tuple[Step, ...] = ()) -> None:
        if isinstance(base, PathReference):
            base, steps = base._konfig_base, base._konfig_steps + steps
        super().__init__(_konfig_base=base, _konfig_steps=steps)

    def _konfig_evaluate(self) -> Any:
        value: Any = self._konfig_base
        if isinstance(value, FieldReference):
            value = value.get()
        for done, (is_attribute, key) in enumerate(self._konfig_steps):
            if isinstance(key, FieldReference):
                key = key.get()
            try:
                value = take_step(value, is_attribute, key)
            except Missing as error:
                self._konfig_dangling(error, done, is_attribute, key)
            if isinstance(value, FieldReference):  # an item of a list
                value = value.get()
        return value

    def _konfig_dangling(
        self, error: Missing, done: int, is_attribute: bool, key: Any
    ) -> NoReturn:
        place = PathReference(self._konfig_base, self._konfig_steps[:done])
        message = (
            f"The reference {self._konfig_text()} leads nowhere: "
            f"{place._konfig_text('')} {error.args[0]}"
        )
        if is_attribute:
            raise AttributeError(message, name=key) from None
        kind = IndexError if error.is_index else ReadableKeyError
        raise kind(message) from None

    def _konfig_text(self, entry: str = ".ref") -> str:
        base = self._konfig_base
        is_node = isinstance(base, Node)
        text = field_expression(base) + entry if is_node else base._konfig_text(entry)
        for is_attribute, key in self._konfig_steps:
            if isinstance(key, FieldReference):
                text += f"[{key._konfig_text()}]"
            else:
                text += f".{key}" if is_attribute else format_part(key)
        return text

    def _konfig_pure_path(self, root: Node) -> tuple[Any, ...] | None:
        """Return the keys to follow from `root`, if this is a plain path from there."""
        keys = tuple(key for _, key in self._konfig_steps)
        if self._konfig_base is not root or any(
            isinstance(key, FieldReference) for key in keys
        ):
            return None
        return keys

    def __deepcopy__(self, memo: dict[int, Any]) -> PathReference:
        steps = tuple(
            (is_attr, copy.deepcopy(k, memo)) for is_attr, k in self._konfig_steps
        )
        base = self._konfig_base
        if not isinstance(base, Node):
            return type(self)(copy.deepcopy(base, memo), steps)
        copied = type(self)(base, steps)
        reroot_when_copied(copied, base, memo)
        return copied


# ------------------------------------------------------------------------------------
# Operations
# ------------------------------------------------------------------------------------


class Operation(Reference):
    """A function of references and values, called when it is read."""

    _konfig_fn: Callable[..., Any]
    _konfig_args: tuple[Any, ...]
    _konfig_kwargs: dict[str, Any]

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            _konfig_fn=fn, _konfig_args=tuple(args), _konfig_kwargs=dict(kwargs or {})
        )

    def _konfig_evaluate(self) -> Any:
        args = [evaluate_nested(arg) for arg in self._konfig_args]
        kwargs = {k: evaluate_nested(arg) for k, arg in self._konfig_kwargs.items()}
        try:
            return self._konfig_fn(*args, **kwargs)
        except Exception as error:
            operands = [*self._konfig_args, *self._konfig_kwargs.values()]
            _raise_if_required(operands)
            unset = [
                f"{raw._konfig_text()} is not set (None)"
                for raw, value in zip(operands, [*args, *kwargs.values()])
                if value is None and isinstance(raw, Reference)
            ]
            why = f" ({'; '.join(unset)})" if unset else ""
            text = f"{error}\nThis happened while computing {self._konfig_text()}{why}."
            raise_reworded(error, text)

    def _konfig_text(self, entry: str = ".ref") -> str:
        fn = self._konfig_fn
        texts = [_operand_text(arg, entry) for arg in self._konfig_args]
        if fn in _SIGNS:
            return f"({texts[0]} {_SIGNS[fn]} {texts[1]})"
        if fn in _UNARY_SIGNS:
            return f"{_UNARY_SIGNS[fn]}{texts[0]}"
        if fn is operator.call:
            name, *texts = texts
        else:
            name = getattr(fn, "__name__", None) or type(fn).__name__
        for key, arg in self._konfig_kwargs.items():
            texts.append(f"{key}={_operand_text(arg, entry)}")
        return f"{name}({', '.join(texts)})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Operation:
        return Operation(
            self._konfig_fn,
            tuple(copy.deepcopy(arg, memo) for arg in self._konfig_args),
            {k: copy.deepcopy(v, memo) for k, v in self._konfig_kwargs.items()},
        )


def _raise_if_required(operands: list[Any]) -> None:
    """Raise if an operand lacks a required value."""
    try:
        with required_values_enforced():
            evaluate_nested(operands)
    except RequiredValueError as error:
        raise error from None


def evaluate_nested(value: Any) -> Any:
    """Evaluate the references in a value, also inside containers."""
    if isinstance(value, FieldReference):
        return value.get()
    if type(value) in (list, tuple, set, frozenset):
        return type(value)([evaluate_nested(item) for item in value])
    if type(value) is dict:
        return {key: evaluate_nested(item) for key, item in value.items()}
    return value


class Missing(LookupError):
    """There is nothing at the next step of a path; says what there is."""

    is_index = False


def take_step(value: Any, is_attribute: bool, key: Any) -> Any:
    """Return an attribute or item, fields of nodes before methods, or raise `Missing`."""
    if isinstance(value, Node):
        if key in value:
            return value[key]
        if is_attribute and hasattr(type(value), key):
            return getattr(value, key)  # a method of the node
        names = [str(k) for k in value._fields]
        raise Missing(
            f"has no field {key!r}.{did_you_mean(key, names)}"
            f" It has: {', '.join(names) or 'nothing'}."
        )
    try:
        return getattr(value, key) if is_attribute else value[key]
    except AttributeError:
        raise Missing(f"is {value!r}, which has no attribute {key!r}.") from None
    except KeyError:
        raise Missing(f"has no item {key!r}.") from None
    except IndexError:
        missing = Missing(f"has {len(value)} items, there is no item {key!r}.")
        missing.is_index = True
        raise missing from None


_SIGNS = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lshift: "<<",
    operator.rshift: ">>",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}
_UNARY_SIGNS = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}


def _operand_text(value: Any, entry: str) -> str:
    if isinstance(value, Reference):
        return value._konfig_text(entry)
    return "<reference>" if isinstance(value, FieldReference) else short_repr(value, 40)
