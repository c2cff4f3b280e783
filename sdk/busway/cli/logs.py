"""Logs of long-running commands, on standard error.

Here: `--log-level` and `--log-format`, and a line of JSON for each record.
Not here: the loggers.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")
LogLevel = Annotated[str, typer.Option("--log-level", envvar="BUSWAY_LOG_LEVEL", help="debug, info, warning or error.")]
LogFormat = Annotated[
    str, typer.Option("--log-format", envvar="BUSWAY_LOG_FORMAT", help="text, or json: an object on each line.")
]
_CHATTY: Final = ("httpx2", "uvicorn")
"""Loggers that write a line for each request."""
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def log_to_stderr(level: str, style: str, worker: str | None = None) -> None:
    """Write the root logger's records to standard error.

    Args:
        worker: its number, for each record.

    Raises:
        ValueError: an unknown value of an option.
    """
    if level.lower() not in LEVELS:
        raise ValueError(f"--log-level {level}: give debug, info, warning or error")
    if style not in FORMATS:
        raise ValueError(f"--log-format {style}: give text or json")
    handler = logging.StreamHandler(sys.stderr)
    if style == "json":
        handler.setFormatter(JsonFormatter(worker))
        logging.captureWarnings(True)  # else they would be lines of text
    else:
        of_worker = f" worker {worker}" if worker is not None else ""
        handler.setFormatter(logging.Formatter(f"%(asctime)s{of_worker} %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for chatty in _CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)


def logs_json() -> bool:
    """Whether this process logs in JSON."""
    return any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers)


class JsonFormatter(logging.Formatter):
    """Formats a record as an object on one line.

    Its fields: time (UTC, ISO 8601), level, logger, message; worker, exception and stack where there are; and what the
    caller gave as `extra`. Values that JSON lacks become text.
    """

    def __init__(self, worker: str | None = None) -> None:
        super().__init__()
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker is not None:
            fields["worker"] = int(self._worker)
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        return json.dumps(extra | fields, ensure_ascii=False, default=str)
