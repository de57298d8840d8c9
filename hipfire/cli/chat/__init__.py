"""`hipfire chat`: a conversation in the terminal, with a serve that answers."""

from hipfire.cli.chat.command import command

__all__ = ["command"]
