import pytest

from hipfire.cli.question import prompt_of, question_of, system_of
from hipfire.config.schema import Origin, Settings, Source, Sourced


@pytest.mark.parametrize(
    ("words", "piped", "prompt"),
    [
        (["Why", "me?"], "", "Why me?"),
        ([], "Why\nme?\n", "Why\nme?"),
        (["Describe:"], "a\nb\n", "Describe:\n\na\nb"),
        ([], " \n", ""),
        ([" "], "", ""),
    ],
)
def test_what_is_piped_in_follows_the_words(words: list[str], piped: str, prompt: str) -> None:
    assert prompt_of(words, piped) == prompt


def test_only_what_was_set_for_this_run_is_asked_for() -> None:
    settings = Settings().replaced(
        {
            "generation.temperature": Sourced(0.5, Source(Origin.FLAG, "-t")),
            "generation.max_tokens": Sourced(9, Source(Origin.ENVIRONMENT, "HIPFIRE_MAX_TOKENS")),
            "generation.top_p": Sourced(0.5, Source(Origin.GLOBAL, "config.toml:1")),
            "prompt.system": Sourced("Be terse.", Source(Origin.GLOBAL, "config.toml:2")),
            "thinking": Sourced("off", Source(Origin.FLAG, "--no-think")),
            "reasoning_effort": Sourced("auto", Source(Origin.FLAG, "--effort")),
            "max_think_tokens": Sourced(64, Source(Origin.GLOBAL, "config.toml:3")),
        }
    )
    question = question_of(settings, model="m", turns=[])
    assert question.wishes == {"temperature": 0.5, "max_tokens": 9}
    assert question.reasoning == {"thinking": False}
    assert system_of(settings) is None


def test_a_system_prompt_given_for_this_run_is_sent() -> None:
    settings = Settings().replaced({"prompt.system": Sourced("Be terse.", Source(Origin.FLAG, "--system"))})
    assert system_of(settings) == "Be terse."
