"""The grammars of a model's answers, over the tokens that the server tells of. Knows no model and no sequence."""

from hipfire.errors import InvalidRequest
from hipfire.grammar.matcher import Constraint, TokenTable
from hipfire.grammar.tokens import unpack_tokens
from hipfire.wire.messages import Vocabulary


class Grammars:
    """Takes the tokens when the first grammar comes: that takes a second, and most models never need it."""

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        self._vocabulary = vocabulary
        self._table: TokenTable | None = None

    def constraint(self, grammar: str | None, *, n_vocab: int) -> Constraint | None:
        """The constraint of an answer; None where there is no grammar.

        Raises InvalidRequest for a grammar that cannot be used, and where no vocabulary of at most `n_vocab` tokens
        is known.
        """
        if grammar is None:
            return None
        if self._table is None:
            self._table = _table(self._vocabulary, n_vocab)
        return self._table.constrain(grammar)


def _table(vocabulary: Vocabulary | None, n_vocab: int) -> TokenTable:
    if vocabulary is None or not vocabulary.end_ids:
        raise InvalidRequest("a grammar needs a vocabulary", param="grammar")
    try:
        tokens = unpack_tokens(vocabulary.lengths, vocabulary.data)
    except ValueError as error:
        raise InvalidRequest(f"the vocabulary is broken: {error}", param="grammar") from None
    if len(tokens) > n_vocab or not all(0 <= token < len(tokens) for token in vocabulary.end_ids):
        raise InvalidRequest(f"a vocabulary of {len(tokens)} tokens for a model of {n_vocab}", param="grammar")
    # A model may have rows for tokens that do not exist.
    tokens += [b""] * (n_vocab - len(tokens))
    return TokenTable(tokens, end_ids=vocabulary.end_ids)
