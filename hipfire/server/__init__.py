"""The HTTP dialect: requests in OpenAI's shapes to canonical ones, events to replies. Knows no engine and no tokens."""
