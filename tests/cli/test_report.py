import pytest

from hipfire.cli.report import sole_cause
from hipfire.errors import EngineUnavailable


def test_an_error_that_came_alone_is_unwrapped() -> None:
    error = EngineUnavailable("gone")
    assert sole_cause(error) is error
    assert sole_cause(BaseExceptionGroup("outer", [ExceptionGroup("inner", [error])])) is error


def test_of_several_errors_none_is_the_cause() -> None:
    group = ExceptionGroup("both", [EngineUnavailable("gone"), OSError()])
    assert sole_cause(group) is group


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(143)])
def test_an_ending_outranks_the_errors_that_fell_with_it(ending: BaseException) -> None:
    inner = BaseExceptionGroup("inner", [ending, OSError()])
    assert sole_cause(BaseExceptionGroup("outer", [EngineUnavailable("gone"), inner])) is ending
