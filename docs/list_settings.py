"""Writes docs/settings.md from the declarations in hipfire.config.schema.

`python docs/list_settings.py` rewrites the page; tests/config/test_settings_page.py fails when it is out of date.
"""

from pathlib import Path

from hipfire.config.schema import SETTINGS, Setting

PAGE = Path(__file__).with_name("settings.md")

HEAD = """# Settings

Written by `docs/list_settings.py` from `hipfire/config/schema.py`.

A setting comes from, the first wins: a flag of the command; an environment variable; `config.toml` in the state root
(`~/.hipfire`, or where `HIPFIRE_HOME` says); the model's card, for `generation.*` and `prompt.system`; the default.
In `config.toml` a key is a table and a name, save those without a dot, which stand above the tables:

```toml
thinking = "off"

[serve]
port = 8080
max_concurrent = 4

[generation]
temperature = 0.7
```

| Key | Default | Allowed | Environment | Meaning |
|---|---|---|---|---|
"""


def page() -> str:
    """The page as the code has it."""
    return HEAD + "".join(_row(key, setting) for key, setting in SETTINGS.items())


def _row(key: str, setting: Setting) -> str:
    cells = (f"`{key}`", _default(setting), _allowed(setting), f"`{setting.env}`", setting.doc)
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
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    return str(setting.within) if setting.within is not None else ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
