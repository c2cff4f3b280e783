"""A node's disk: an ext4 file system in an image file, whose power can be cut.

Here: mounting, the cut, what it dropped, a full disk.
Not here: when that happens (`faults`).

The cut is the kernel's own: FS_IOC_SHUTDOWN without a flush of the journal. The next mount finds what was synced.
"""

import bisect
import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

_SHUTDOWN: Final = 0x8004587D
_NO_LOG_FLUSH: Final = 2
SIZE: Final = 1 << 30
_STEP: Final = 4096


class Disk:
    """One disk, mounted from its construction on.

    The mount and the loop device end with the mount namespace of this process, which `python -m tests.chaos` made.

    Args:
        image: file to make.
        mounted: directory to make.

    Attributes:
        data: where the node's files are.
    """

    def __init__(self, image: Path, mounted: Path) -> None:
        self._image, self._mounted = image, mounted
        self.data = mounted / "data"
        with image.open("wb") as file:
            file.truncate(SIZE)
        _run("mkfs.ext4", "-q", "-m", "0", str(image))
        mounted.mkdir()
        self._mount()
        self.data.mkdir()

    def _mount(self) -> None:
        _run("mount", "-o", "loop,noatime", str(self._image), str(self._mounted))

    def sync(self) -> None:
        """Write everything, as an operator may do after formatting a node."""
        _run("sync", "-f", str(self._mounted))

    def logs(self) -> dict[Path, bytes]:
        """Return what the log files contain, with what is not synced yet."""
        contents = {}
        for path in self.data.rglob("*.log"):
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                contents[path] = path.read_bytes()
        return contents

    def cut(self) -> None:
        """Lose power: what is not synced is gone, and each later call on the disk fails."""
        directory = os.open(self._mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(directory)

    def restore(self) -> None:
        """Mount it again after a cut, once no process uses it."""
        _run("umount", str(self._mounted))
        self._mount()

    def close(self, copy: Path | None) -> None:
        """Unmount it, once no process uses it, and delete the image; first copy the data, if wanted."""
        if copy is not None:
            shutil.copytree(self.data, copy)
        _run("umount", str(self._mounted))
        self._mounted.rmdir()
        self._image.unlink()

    def fill(self) -> None:
        """Leave no free block."""
        ballast = os.open(self._mounted / "ballast", os.O_WRONLY | os.O_CREAT)
        try:
            end = 0
            while free := os.fstatvfs(ballast).f_bavail:
                wanted = free * _STEP
                while wanted >= _STEP:
                    try:
                        os.posix_fallocate(ballast, end, wanted)
                    except OSError:
                        wanted //= 2
                    else:
                        end += wanted
                        break
                else:
                    break
        finally:
            os.close(ballast)

    def free(self) -> None:
        """Undo `fill`."""
        (self._mounted / "ballast").unlink()


def dropped(before: dict[Path, bytes], after: dict[Path, bytes]) -> int:
    """Return how many bytes of log files a cut dropped or changed."""
    return sum(len(content) - _common(content, after.get(path, b"")) for path, content in before.items())


def _common(first: bytes, second: bytes) -> int:
    """Return the length of the longest common beginning."""
    shorter = min(len(first), len(second))
    return bisect.bisect_left(range(1, shorter + 1), True, key=lambda length: first[:length] != second[:length])


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)} failed: {done.stderr.strip()}")
