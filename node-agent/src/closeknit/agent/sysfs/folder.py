"""Folders below the root of the machine that is read, and reads out of them that always end."""

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

MAX_TEXT_BYTES = 4096  # a page: the most that one attribute of sysfs holds
# More than any folder read here has; 16 cards of 127 virtual functions are 2,048 PCI devices.
MAX_ENTRIES = 16_384
MAX_ERRORS = 32  # devices that are named as unreadable; a message of 4 KB holds them, and what comes after is the same

_T = TypeVar("_T")


class UnusableError(OSError):
    """What was found is not what belongs there; the message is the word for `errors`."""


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder, with no link left in its path, inside of the root folder.

    Its methods raise nothing: what cannot be read is None, or empty, and why it could not stands in `errors` under the
    name of the fact that it would have been. Names may have several parts, and lead over links; where they lead out of
    the root folder, nothing is there.
    """

    root: str
    """The real path of the root folder, without a trailing slash."""
    path: str
    """The real path of this one."""
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its own name, wherever the link to it stood."""
        return self.path.rpartition("/")[2]

    @property
    def inside(self) -> str:
        """Its path as it is called below the root: /sys/devices/pci0000:00."""
        return self.path[len(self.root) :] or "/"

    def parents(self) -> list[str]:
        """The names of the folders above it, nearest first, up to the root."""
        return self.inside.strip("/").split("/")[-2::-1]

    def with_errors(self) -> "Folder":
        """The same folder for a reading of its own: what cannot be read is noted there."""
        return Folder(self.root, self.path)

    def folder(self, name: str, fact: str | None = None) -> "Folder | None":
        """The folder `name` in it or behind that link; None if there is none, in `errors` if `fact` needs it."""
        found = self._attempt(fact, lambda: self._real(name))
        return None if found is None else Folder(self.root, found, self.errors)

    def names(self, name: str, fact: str | None = None) -> list[str]:
        """The names in the folder `name` that are text, sorted; of endless ones as many as are still read."""

        def listed() -> list[str]:
            with os.scandir(self._real(name)) as entries:
                found = [entry.name for entry in islice(entries, MAX_ENTRIES + 1) if entry.name.isprintable()]
            if len(found) > MAX_ENTRIES and fact is not None:
                self.errors[fact] = "TooMany"
            return sorted(found)[:MAX_ENTRIES]

        return self._attempt(fact, listed) or []

    def has(self, name: str, fact: str) -> bool | None:
        """Whether there is such a file or folder; None where that cannot be told."""

        def found() -> bool:
            try:
                os.lstat(self._placed(name))
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

        return self._attempt(fact, found)

    def inode(self, name: str, fact: str) -> int | None:
        """The number of a file or folder, which another one of that name seldom gets, and never soon after it."""
        return self._attempt(fact, lambda: os.lstat(self._placed(name)).st_ino)

    def target(self, name: str) -> str | None:
        """The last name of the link's target: of ../../../bus/pci/drivers/mlx5_core mlx5_core."""
        found = self._attempt(None, lambda: Path(self._placed(name)).readlink())
        return found.name if found is not None and found.name.isprintable() and found.name else None

    def text(self, name: str, fact: str) -> str | None:
        """What one line of text says, without the space around it."""
        content = self.content(name, fact)
        if content is None:
            return None
        text = content.decode(errors="replace").strip().rstrip("\0")
        if text and text.isprintable() and "\N{REPLACEMENT CHARACTER}" not in text:
            return text
        self.errors[fact] = "NotText" if text else "Empty"
        return None

    def number(self, name: str, fact: str) -> int | None:
        """What one decimal number says."""
        text = self.text(name, fact)
        if text is None:
            return None
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) <= 18:  # 64 bits
            return int(text)
        self.errors[fact] = "NotANumber"
        return None

    def content(self, name: str, fact: str, most: int = MAX_TEXT_BYTES) -> bytes | None:
        """What is in a regular file; one of more than `most` bytes is `TooLarge`."""
        content = self.head(name, fact, most + 1)
        if content is not None and len(content) > most:
            self.errors[fact] = "TooLarge"
            return None
        return content

    def head(self, name: str, fact: str, most: int) -> bytes | None:
        """The first `most` bytes of a regular file."""

        def read() -> bytes:
            # O_NONBLOCK: a pipe with no writer must not hold up the agent before it is known for what it is.
            opened = os.open(self._placed(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if not stat.S_ISREG(os.fstat(opened).st_mode):
                    raise UnusableError("NotAFile")
                content = b""
                while len(content) < most and (more := os.read(opened, most - len(content))):
                    content += more
            finally:
                os.close(opened)
            return content

        return self._attempt(fact, read)

    def _placed(self, name: str) -> str:
        """The path of a name whose last part may be missing, or a link."""
        above, parted, last = name.rpartition("/")
        return f"{self._real(above) if parted else self.path}/{last}"

    def _real(self, name: str) -> str:
        found = os.path.realpath(f"{self.path}/{name}", strict=True)
        if not (found == self.root or found.startswith(f"{self.root}/")):
            raise UnusableError("OutsideRoot")
        if not found.isprintable():
            raise UnusableError("NotText")
        return found

    def _attempt(self, fact: str | None, attempt: Callable[[], _T]) -> _T | None:
        try:
            return attempt()
        except UnusableError as error:
            word = str(error)
        except OSError as error:
            word = errno.errorcode.get(error.errno or 0, type(error).__name__)
        except ValueError:  # a name with a null byte, or one that no file system spells
            word = "NotAName"
        if fact is not None:
            self.errors[fact] = word
        return None


def root_folder(root: Path, errors: dict[str, str]) -> Folder:
    """The folder that everything is read below. One that does not exist is empty."""
    path = os.path.realpath(root).rstrip("/")
    return Folder(path, path, errors)
