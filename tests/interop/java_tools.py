"""Tools of Apache Kafka, one after the other in one JVM.

Here: their classes, starting the JVM, running a tool with its exit code and what it printed.
Not here: what they are asked (`test_java_shapes`, `test_three_nodes_beside_kafka`, `test_java_files_of_three_nodes`).
"""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.support.apache_kafka import java_command

SOURCE: Final = Path(__file__).parent / "java" / "Tools.java"
CLASSES: Final = {
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "reassign": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "storage": "kafka.tools.StorageTool",
    "topics": "org.apache.kafka.tools.TopicCommand",
}
SHELL: Final = "org.apache.kafka.shell.MetadataShell"
"""Runs in a JVM of its own: its threads outlive its end."""
_NOISE: Final = ("\tat ", "Caused by", "Tools$Ended", "exit 0\n", "exit 1\n")
"""Begins lines of stacks, and of tools that catch the exit."""


class ToolsJvm:
    """A JVM while its context lasts; for one caller at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str]

    def __enter__(self) -> "ToolsJvm":
        self._process = subprocess.Popen(
            java_command(str(SOURCE)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, tool: str, *arguments: str) -> tuple[int, str]:
        """What a tool ended with and printed, without stacks."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join((CLASSES[tool], *arguments)) + "\n")
        self._process.stdin.flush()
        code, printed = int(self._process.stdout.readline()), []
        while (text := self._process.stdout.readline()) != "\x04\n":
            assert text, "the JVM has ended"
            if not text.startswith(_NOISE):
                printed.append(text)
        return code, "".join(printed)
