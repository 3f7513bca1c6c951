"""Files in places where other users may have been before: no link followed, no FIFO waited for."""

import os
import stat


def is_own(folder):
    """Whether it is a folder, and this user's."""
    found = os.lstat(folder)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def is_open_to_all(folder):
    return bool(os.stat(folder).st_mode & stat.S_IWOTH)


def open_to_read(path):
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="ascii")


def write_new(path, text):
    """A file that was not there, in place of whatever has that name."""
    path.unlink(missing_ok=True)
    with open(path, "x", encoding="ascii") as file:
        file.write(text)
