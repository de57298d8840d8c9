"""A log record as one JSON object on a line of its own, for programs that collect logs. Knows not where lines go."""

import datetime as dt
import json
import logging


class JsonLines(logging.Formatter):
    """`time` (UTC, ISO 8601), `level`, `logger`, `message`, and `traceback` where there is one.

    What a record has as `extra={"fields": {...}}` is beside them.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = dt.datetime.fromtimestamp(record.created, tz=dt.UTC)
        document: dict[str, object] = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document)
