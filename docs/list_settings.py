"""Writes docs/settings.md from the declarations in hipfire.config.schema.

`python docs/list_settings.py` rewrites the page; tests/config/test_settings_page.py fails when it is out of date.
"""

from pathlib import Path

from hipfire.config.schema import SETTINGS, Setting

PAGE = Path(__file__).with_name("settings.md")

HEAD = """# Settings

Written by `docs/list_settings.py` from `hipfire/config/schema.py`.

[configuration.md](configuration.md) tells where a setting may be set, and what wins. In `config.toml` a key is a table
and a name, save those without a dot, which stand above the tables:

```toml
thinking = "off"

[serve]
port = 8080
max_concurrent = 4

[generation]
temperature = 0.7
```

The last part of a key alone will do, there and on the command line: `port` is `serve.port`. Models may differ in the
settings that have a dot in the column Per model.

| Key | Default | Allowed | Environment | Per model | Meaning |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The page as the code has it."""
    return HEAD + "".join(_row(key, setting) for key, setting in SETTINGS.items())


def _row(key: str, setting: Setting) -> str:
    cells = (f"`{key}`", _default(setting), _allowed(setting), f"`{setting.env}`", "•" * setting.per_model, setting.doc)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _default(setting: Setting) -> str:
    default = setting.default
    if default is None:
        return "–" if setting.type == str | None else "`auto`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, tuple):
        return "`[]`" if not default else f"`{list(default)}`"
    return f"`{default:g}`" if isinstance(default, float) else f"`{default}`"


def _allowed(setting: Setting) -> str:
    if setting.choices or setting.forms:
        return ", ".join([*(f"`{choice}`" for choice in setting.choices), *(form.what for form in setting.forms)])
    return str(setting.within) if setting.within is not None else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
