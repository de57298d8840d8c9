import pytest

from hipfire.cli.where import Where, read_where


def is_model(word: str) -> bool:
    return word in {"flux.schnell:1", "smollm2:135m"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", Where()),
        ("smollm2:135m", Where(model="smollm2:135m")),
        ("unknown", Where(model="unknown")),
        ("./dir/model.gguf", Where(model="./dir/model.gguf")),
        ("8080", Where(port="8080")),
        ("127.0.0.1", Where(host="127.0.0.1")),
        ("localhost", Where(host="localhost")),
        ("::1", Where(host="::1")),
        ("0.0.0.0:8080", Where(host="0.0.0.0", port="8080")),
        ("myhost:8080", Where(host="myhost", port="8080")),
        ("[::1]:8080", Where(host="::1", port="8080")),
        ("[::]", Where(host="::")),
        ("flux.schnell:1", Where(model="flux.schnell:1")),
        ("smollm2:135m 8080", Where(model="smollm2:135m", port="8080")),
        ("smollm2:135m localhost 8080", Where(model="smollm2:135m", host="localhost", port="8080")),
        ("unknown myhost 8080", Where(model="unknown", host="myhost", port="8080")),
        ("unknown myhost:8080", Where(model="unknown", host="myhost", port="8080")),
        ("localhost:80 smollm2:135m", Where(model="smollm2:135m", host="localhost", port="80")),
    ],
)
def test_words_are_told_apart(words: str, expected: Where) -> None:
    assert read_where(words.split(), is_model) == expected


@pytest.mark.parametrize("words", ["80 81", "localhost:80 81", "m localhost ::1", "m h h2"])
def test_two_of_a_kind_are_refused(words: str) -> None:
    with pytest.raises(ValueError, match="there are two"):
        read_where(words.split(), is_model)
