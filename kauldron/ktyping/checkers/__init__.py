"""Compiled annotations: one class per kind, and the compiler that picks it."""

from kauldron.ktyping.checkers.checker import Checker as Checker
from kauldron.ktyping.checkers.checker import Failure as Failure
from kauldron.ktyping.checkers.compiler import Compiler as Compiler
