"""What one rendering of a template may use: time, text and structure. Knows no Jinja."""

from collections.abc import Callable, Collection, Iterable, Iterator

import attrs

from hipfire.errors import TemplateError

# What JSON, Jinja and these types' own methods make. Looking for abstract types would take longer than the operation.
_COLLECTIONS: tuple[type[Collection[object]], ...] = (
    dict,
    list,
    tuple,
    set,
    frozenset,
    type({}.keys()),
    type({}.values()),
    type({}.items()),
)
_MAX_DEPTH = 500
# Hashing a tuple goes through all tuples in it, every time that it is looked up.
_MAX_HASHED = 1000
_MAX_MESSAGES = 1000
# The clock is looked at after so many operations on little, or fewer on much.
_LOOK_EVERY = 200
_CHARACTERS_PER_TICK = 2**10
_CHARACTERS_PER_ITEM = 2**7


@attrs.frozen(kw_only=True)
class RenderLimits:
    """Far above what any conversation needs that fits a context, far below what would hurt the server.

    `seconds` are of the processor, and `seconds_per_message` more for each of up to 1000 messages: some vendors'
    templates go through the whole conversation for every message.
    `characters` are counted as they are made, so a text that is copied counts again. `items` are the elements of
    collections, counted likewise; nor may any one collection hold more, all that is nested in it included.
    """

    seconds: float = 1.0
    seconds_per_message: float = 0.01
    characters: int = 64 * 2**20
    items: int = 2 * 2**20


@attrs.frozen
class _Size:
    """Of a collection with all that is nested in it, as often as it occurs there. `n_hashed`: what hashing visits."""

    n_items: int
    n_characters: int
    n_hashed: int
    depth: int


class RenderBudget:
    """What is left of the limits. Every method raises TemplateError when a limit is passed.

    An operation is charged before it happens where its result may be much larger than what it works on, and
    afterwards where it cannot be. So no single operation takes long, and time is up at the next one.
    """

    def __init__(self, limits: RenderLimits, clock: Callable[[], float], *, n_messages: int) -> None:
        self._limits = limits
        self._clock = clock
        self._seconds = limits.seconds + limits.seconds_per_message * min(n_messages, _MAX_MESSAGES)
        self._deadline = clock() + self._seconds
        self._until_look = _LOOK_EVERY
        self._characters = limits.characters
        self._items = limits.items
        # By id, with the collection itself so that the id stays its own. Templates cannot change a collection.
        self._sizes: dict[int, tuple[object, _Size]] = {}

    def tick(self, n_characters: int = 0) -> None:
        """To be called at least once for every operation, with how much text it goes through."""
        # Reading the clock costs more than most operations do.
        self._until_look -= 1 + n_characters // _CHARACTERS_PER_TICK
        if self._until_look <= 0:
            self._until_look = _LOOK_EVERY
            if self._clock() > self._deadline:
                raise TemplateError(f"the chat template takes longer than {self._seconds:g} s")

    def each(self, values: Iterable[object]) -> Iterator[object]:
        """The same values; time may run out between any two of them."""
        for value in values:
            self.tick()
            yield value

    def spend_characters(self, n: int) -> None:
        self.tick(n)
        self._characters -= n
        if self._characters < 0:
            raise TemplateError(f"the chat template makes more than {self._limits.characters} characters")

    def spend_items(self, n: int) -> None:
        self.tick(n * _CHARACTERS_PER_ITEM)
        self._items -= n
        if self._items < 0:
            raise TemplateError(f"the chat template makes collections of more than {self._limits.items} items")

    def keep(self, value: object) -> None:
        """Charge for a value that an operation made. The strings in a collection were there before."""
        if isinstance(value, str):
            self.spend_characters(len(value))
        elif isinstance(value, _COLLECTIONS):
            self.spend_items(len(value))
            self._check(self._size(value))

    def read(self, value: object, *, growth: int = 1) -> None:
        """Charge for an operation that goes through all text in `value` and makes at most `growth` times as much."""
        if isinstance(value, str):
            self.spend_characters(growth * len(value))
        elif isinstance(value, _COLLECTIONS):
            size = self._size(value)
            self._check(size)
            self.spend_items(size.n_items)
            self.spend_characters(growth * size.n_characters)

    def _check(self, size: _Size) -> None:
        if size.n_items > self._limits.items or size.depth > _MAX_DEPTH or size.n_hashed > _MAX_HASHED:
            raise TemplateError("the chat template nests collections without end")

    def _size(self, collection: Iterable[object]) -> _Size:
        # A few short lists that hold each other several times over read as an endless text, so sizes add up; and
        # since every collection is seen when it is made, adding up is all there is to do.
        known = self._sizes.get(id(collection))
        if known is not None:
            return known[1]
        n_parts = n_items = n_characters = n_hashed = depth = 0
        parts: Iterable[object] = collection
        if isinstance(collection, dict):
            parts = (part for item in collection.items() for part in item)
        for part in parts:
            n_parts += 1
            if isinstance(part, str):
                n_characters += len(part)
            elif isinstance(part, _COLLECTIONS):
                size = self._size(part)
                n_items += size.n_items
                n_characters += size.n_characters
                n_hashed += size.n_hashed
                depth = max(depth, size.depth)
        n_hashed = n_hashed + n_parts if isinstance(collection, tuple) else 0
        size = _Size(n_items + n_parts, n_characters, n_hashed, depth + 1)
        self._sizes[id(collection)] = (collection, size)
        return size


def is_collection(value: object) -> bool:
    """Whether `value` is one that a budget looks into."""
    return isinstance(value, _COLLECTIONS)
