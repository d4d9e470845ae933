"""Text for prompts of which only the lengths and what they share are known. Pure.

Words of four letters, drawn by the name of a piece and the place in it: pieces of one name are the
beginning of one endless text on every machine. Such a word is one token for most tokenizers, but
how many tokens a server makes of them is measured (``Measure``), not assumed.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kvserving_operator.simulation.trace import Request

_WORDS: Final = (
    "able also area army away baby back bank base bear beat bell best bill bird blue boat body "
    "bone book born both burn busy calm card care case city club coal coat cold come cook cool "
    "corn cost dark data date dear deep desk door down draw drop duty each earn east easy even "
    "ever face fact fair fall farm fast fear feel file fill film find fine fire firm fish five "
    "flat food foot form four free full game gate girl give glad goal gold good gray grow hair "
    "half hall hand hard head hear heat help here high hill hold home hope hour idea iron join "
    "jump just keep kind king lady lake land last late lead leaf lean left lend "
    "less life lift like line"
)
WORDS: Final = tuple(_WORDS.split())
"""128 of them: seven bits of a hash choose one."""

_BLOCK: Final = 64
"""Words that one hash of 64 bytes gives."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What a server makes of words: tokens = ``fixed`` + ``each`` · words."""

    each: float = 1.0
    fixed: float = 0.0

    @classmethod
    def of(cls, few: tuple[int, int], many: tuple[int, int]) -> "Measure":
        """From two prompts, each as (words, tokens); ValueError if no line goes through them."""
        each = (many[1] - few[1]) / (many[0] - few[0])
        if each <= 0:
            raise ValueError(f"{many[0]} words are {many[1]} tokens, {few[0]} words {few[1]}")
        return cls(each=each, fixed=few[1] - each * few[0])

    def words(self, tokens: float) -> int:
        """The words that come closest to so many tokens."""
        return max(1, round((tokens - self.fixed) / self.each))


def prompt(request: Request, measure: Measure) -> str:
    """The prompt of a request: its own text, or words for each of its pieces."""
    if request.text is not None:
        return request.text
    return " ".join(_words(request, measure))


def words(name: str, count: int) -> list[str]:
    """The first words of an endless text."""
    chosen: list[str] = []
    for block in range(-(-count // _BLOCK)):
        digest = hashlib.blake2b(f"{name}/{block}".encode(), digest_size=_BLOCK).digest()
        chosen.extend(WORDS[byte & 127] for byte in digest)
    return chosen[:count]


def _words(request: Request, measure: Measure) -> Iterator[str]:
    """Whole words up to each piece's end, so that rounding does not add up."""
    position, written = 0, 0
    for segment in request.segments:
        position += segment.tokens
        until = max(written, measure.words(position))
        yield from words(segment.id, until - written)
        written = until
