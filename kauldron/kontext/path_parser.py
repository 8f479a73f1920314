"""Path texts to parts. The grammar itself is in `kauldron.path_grammar`."""

from kauldron.path_grammar import Part as Part
from kauldron.path_grammar import PathSyntaxError as PathSyntaxError
from kauldron.path_grammar import Wildcard as Wildcard
from kauldron.path_grammar import parse


def parse_parts(text: str) -> list[Part]:
    """The parts of a path, as a new list.

    >>> parse_parts("a.b[0].*")
    ['a', 'b', 0, <Wildcard.STAR: '*'>]

    Raises:
      PathSyntaxError: `text` is not a path.
    """
    return list(parse(text))
