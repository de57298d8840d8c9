"""What an answer may be: rules of a grammar, bounds on schemas, masks over tokens. Knows no model and no HTTP."""
