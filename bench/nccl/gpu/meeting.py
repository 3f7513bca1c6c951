"""How the ranks of a job on several hosts get its id: each asks rank 0 for it, over TCP."""

import os
import pathlib
import re
import shutil
import socket
import tempfile
import time

from toolkit import Broken

ADDRESS = re.compile(r"\[?(.+?)\]?:(\d+)")
ID_BYTES = 128
LIMIT_S = 120
PAUSE_S = 0.1


def id_file(rank, ranks, master):
    """The file with the id, for the program that takes this one's place: rank 0 will write it."""
    host, port = ADDRESS.fullmatch(master).groups()
    if rank != 0:
        file = os.memfd_create("nccl-id", 0)  # which outlives this program, and nothing else
        os.write(file, ask(rank, host, int(port)))
        return f"/proc/self/fd/{file}"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pacecar-"))
    try:
        found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        server = socket.create_server(found[4][:2], family=found[0])
    except OSError as error:
        raise Broken(f"rank 0 cannot listen at {master} ({error}): name an address of this host "
                     "and a free port") from None
    parent = os.getpid()
    if os.fork() == 0:
        try:
            answer(server, ranks, folder / "id", parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
    return folder / "id"


def ask(rank, host, port):
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            with socket.create_connection((host, port), timeout=LIMIT_S) as server:
                server.sendall(b"%d\n" % rank)
                found = server.makefile("rb").read(ID_BYTES)
            if len(found) == ID_BYTES:
                return found
            error = "it hung up"
        except OSError as reason:
            error = reason
        if time.monotonic() > deadline:
            raise Broken(f"rank 0 does not answer at {host}:{port} ({error})")
        time.sleep(PAUSE_S)


def answer(server, ranks, file, parent):
    """Gives the id, once rank 0 has written it, to each other rank; ends with rank 0."""
    missing = set(range(1, ranks))
    server.settimeout(PAUSE_S)
    while missing and os.getppid() == parent:
        try:
            client, _ = server.accept()
            with client:
                client.settimeout(PAUSE_S)
                rank = int(client.makefile("rb").readline(8))
                client.sendall(file.read_bytes())
                missing.discard(rank)
        except (OSError, ValueError):  # nobody, a stranger, or too early: the rank asks again
            pass
