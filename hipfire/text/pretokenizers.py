"""Pre-tokenizers by the name a GGUF file gives them: how text is cut into pieces before byte pairs are merged.

The table's facts are llama.cpp's (`src/llama-vocab.cpp`), the names are those of `tokenizer.ggml.pre`. Where
llama.cpp only approximates a pattern that its regex engine cannot express (tekken, gpt-4o), the row has the pattern
the model was trained with. Patterns are in Oniguruma's syntax. Knows no vocabulary.
"""

import attrs

from hipfire.errors import UnsupportedFile


@attrs.frozen(kw_only=True)
class PreTokenizer:
    """One way to cut text. Each pattern of `splits` cuts what the one before it left; what it matches and what
    lies between matches are pieces alike.

    `byte_level`: tokens spell bytes in GPT-2's printable alphabet; if not, they spell characters, with "▁" for space.
    `ignore_merges`: a piece that is a token as a whole is that token, even where merging would cut it otherwise.
    `adds_bos`: whether a prompt begins with BOS where the file does not say.
    """

    names: tuple[str, ...]
    splits: tuple[str, ...]
    byte_level: bool = True
    ignore_merges: bool = False
    adds_bos: bool = False


def _any_of(*patterns: str) -> str:
    return "|".join(patterns)


_CONTRACTION = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
_SPACES = r"\s+(?!\S)|\s+"
_LINES = rf"\s*[\r\n]+|{_SPACES}"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_CASED_WORDS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)
_PATH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"

_GPT2 = _any_of(r"'s|'t|'re|'ve|'m|'ll|'d", r" ?\p{L}+", r" ?\p{N}+", r" ?[^\s\p{L}\p{N}]+", _SPACES)
_LLAMA3 = _any_of(_CONTRACTION, _WORD, r"\p{N}{1,3}", _PUNCTUATION, _LINES)
_QWEN2 = _any_of(_CONTRACTION, _WORD, r"\p{N}", _PUNCTUATION, _LINES)
_QWEN35 = _any_of(_CONTRACTION, r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", r"\p{N}", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", _LINES)
_GPT4O = _any_of(*(f"{word}(?:{_CONTRACTION})?" for word in _CASED_WORDS), r"\p{N}{1,3}", _PATH, _LINES)
_TEKKEN = _any_of(*_CASED_WORDS, r"\p{N}", _PATH, _LINES)
_CJK = "[一-龥぀-ゟ゠-ヿ]+"
_DEEPSEEK3 = _any_of(
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r" ?[\p{P}\p{S}]+[\r\n]*",
    _LINES,
)
# The letters with case of the Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee, Coptic, Deseret, … scripts.
_DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌ"
    "ῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)

_ROWS = (
    PreTokenizer(names=("default",), splits=(r"[\p{P}$+<=>^~|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    PreTokenizer(
        names=(
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "exaone4",
            "granite-docling",
            "gigachat",
            "a.x-4.0",
        ),
        splits=(_GPT2,),
    ),
    PreTokenizer(
        names=("smollm", "starcoder", "refact", "codeshell", "command-r", "exaone", "minerva-7b", "mellum2"),
        splits=(r"\p{N}", _GPT2),
    ),
    PreTokenizer(
        names=("llama-bpe", "llama3", "llama-v3", "lfm2", "falcon3", "falcon-h1", "pixtral", "midm-2.0"),
        splits=(_LLAMA3,),
        ignore_merges=True,
        adds_bos=True,
    ),
    PreTokenizer(names=("dbrx", "smaug-bpe", "chatglm-bpe"), splits=(_LLAMA3,)),
    PreTokenizer(names=("glm4", "glm5"), splits=(_LLAMA3,), ignore_merges=True),
    PreTokenizer(
        names=("qwen2", "deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"),
        splits=(_QWEN2,),
    ),
    PreTokenizer(names=("qwen35",), splits=(_QWEN35,)),
    PreTokenizer(names=("gpt-4o", "llama4", "kanana2", "minimax-m2"), splits=(_GPT4O,)),
    PreTokenizer(names=("tiny_aya", "cohere2moe"), splits=(r"\d{1,3}(?=(?:\d{3})*\b)", _GPT4O)),
    PreTokenizer(names=("tekken",), splits=(_TEKKEN,), ignore_merges=True, adds_bos=True),
    PreTokenizer(
        names=("deepseek-llm",),
        splits=(
            "[\r\n]",
            rf"\s?[{_DEEPSEEK_LETTERS}]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            "[一-龥ࠀ-一가-퟿]+",
            r"\p{N}+",
        ),
    ),
    PreTokenizer(
        names=("deepseek-coder",),
        splits=("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"),
    ),
    PreTokenizer(
        names=("deepseek-v3", "hunyuan-dense", "joyai-llm"),
        splits=(r"\p{N}{1,3}", _CJK, _DEEPSEEK3),
    ),
    PreTokenizer(names=("falcon",), splits=(r"[\p{P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]")),
    PreTokenizer(
        names=("bailingmoe", "bailingmoe2", "llada-moe"),
        splits=(_any_of(_CONTRACTION, _WORD, r"\p{N}", _PUNCTUATION, r"\s*[\r\n]", _SPACES),),
    ),
    PreTokenizer(
        names=("seed-coder",),
        splits=(_any_of(_CONTRACTION, _WORD, r"\p{N}", r" ?[^\s\p{L}\p{N}\r\n]+", _LINES),),
    ),
    # Lines are pieces and merging runs over whole lines: SentencePiece's alphabet with byte pairs' merges.
    PreTokenizer(names=("gemma4",), splits=(r"[^\n]+|\n+",), byte_level=False, adds_bos=True),
)


def pre_tokenizer(name: str) -> PreTokenizer:
    """The row called `name`. Raises UnsupportedFile, since a wrong guess would only show as poor answers."""
    for row in _ROWS:
        if name in row.names:
            return row
    known = ", ".join(sorted(name for row in _ROWS for name in row.names))
    raise UnsupportedFile(f"unknown pre-tokenizer {name!r} (tokenizer.ggml.pre); known are: {known}")
