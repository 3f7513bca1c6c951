"""Safe access to files in folders that others can write: follows no link, waits for no FIFO."""

import os
import stat


def is_own(folder):
    """Whether it is a folder that this user owns."""
    found = os.lstat(folder)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def is_open_to_all(folder):
    return bool(os.stat(folder).st_mode & stat.S_IWOTH)


def open_to_read(path):
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="ascii")


def write_new(path, text):
    """Makes a new file in place of any that has the name."""
    path.unlink(missing_ok=True)
    with open(path, "x", encoding="ascii") as file:
        file.write(text)
