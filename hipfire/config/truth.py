"""How true and false are written. Apart, since every command looks a variable up before it knows of settings."""


def read_bool(text: str) -> bool:
    """The truth that a text stands for. Raises KeyError."""
    return {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}[
        text.lower()
    ]
