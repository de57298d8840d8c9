"""How families of models write reasoning and tool calls: a file for each syntax, a row for each family."""
