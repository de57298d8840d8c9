import list_settings


def test_the_page_is_what_the_code_declares() -> None:
    assert list_settings.PAGE.read_text(encoding="utf-8") == list_settings.page(), "run: python docs/list_settings.py"
