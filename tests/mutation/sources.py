"""The copy of the source tree in which every mutation point holds all its mutants."""
import concurrent.futures
import dataclasses
import hashlib
import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import points

HERE = pathlib.Path(__file__).resolve().parent
SPACE = 2048  # numbers per file, so that a new point in one file renumbers no other file
NOT_COPIED = {"build", ".git", "__pycache__"}


@dataclasses.dataclass(frozen=True)
class Numbered:
    """A mutant of a file. `key` stays the same when its line moves unchanged."""
    number: int
    file: str
    line: int
    was: str
    became: str
    occurrence: int  # of the same change in the same file

    @property
    def key(self):
        return f"{self.file}|{self.was}|{self.became}|{self.occurrence}"


def write_if_changed(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def copy_tree(source, copy, left_out):
    """Updates the copy, except for the files in `left_out`, which are rewritten."""
    wanted = set()
    for folder, names, files in os.walk(source):
        names[:] = [name for name in names if name not in NOT_COPIED]
        for file in files:
            path = pathlib.Path(folder, file)
            relative = path.relative_to(source)
            wanted.add(relative)
            if relative in left_out or path.is_symlink() and not path.exists():
                continue
            target = copy / relative
            if not target.exists() or target.read_bytes() != path.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
                os.utime(target)  # newer than its object files
    for path in list(copy.rglob("*")):
        if path.is_file() and path.relative_to(copy) not in wanted:
            path.unlink()


def mutated_files(config, source):
    found = [path for folder in config["folders"] for path in (source / folder).rglob("*")
             if path.suffix in (".cc", ".h")]
    return sorted(path.relative_to(source) for path in found)


def points_of(path, config, source, cache):
    """The points of a file; from the cache if file, rules and points.py are unchanged."""
    arguments = [f"-I{source}" if part == "-I." else part for part in config["parse"]]
    skipped = config["skipped_calls"], config["skipped_functions"]
    about = (source / path).read_bytes() + pathlib.Path(points.__file__).read_bytes() + \
        repr((arguments, skipped)).encode()
    stored = cache / hashlib.sha256(about).hexdigest()
    if stored.exists():
        return pickle.loads(stored.read_bytes())
    found = points.find(source / path, arguments, *skipped)
    cache.mkdir(parents=True, exist_ok=True)
    stored.write_bytes(pickle.dumps(found))
    return found


def rewrite(text, found, first_number):
    """The text with all points, numbered from the first number on."""
    events = []
    number = first_number
    for order, point in enumerate(found):
        filled = lambda piece, at=number: piece.replace("@0", str(at)).encode()
        for inner, (start, end, opening, closing) in enumerate(point.wraps):
            events.append((start, 2, (order, inner), start, filled(opening)))
            events.append((end, 0, (-order, -inner), end, filled(closing)))
        for start, end, instead in point.cuts:
            events.append((start, 1, (order, 0), end, instead.encode()))
        number += len(point.mutants)
    pieces = []
    done = 0
    for start, _, _, end, piece in sorted(events, key=lambda event: event[:3]):
        pieces += [text[done:start], piece]
        done = max(done, end)
    return b"".join(pieces) + text[done:]


def numbered(file, found, first_number):
    seen = {}
    mutants = []
    for mutant in (mutant for point in found for mutant in point.mutants):
        change = (mutant.was, mutant.became)
        seen[change] = seen.get(change, -1) + 1
        mutants.append(Numbered(first_number + len(mutants), file, mutant.line, *change,
                                seen[change]))
    return mutants


def prepare(config, source, work):
    """Writes the copy; returns all mutants."""
    files = mutated_files(config, source)
    copy_tree(source, work / "source", set(files))
    runtime = work / "point.h"
    write_if_changed(runtime, (HERE / "point.h").read_bytes())
    with concurrent.futures.ProcessPoolExecutor(config["jobs"]) as pool:
        count = len(files)
        found = list(pool.map(points_of, files, [config] * count, [source] * count,
                              [work / "points"] * count))
    mutants = []
    for place, (path, of_file) in enumerate(zip(files, found)):
        first = place * SPACE + 1
        mine = numbered(str(path), of_file, first)
        if len(mine) > SPACE:
            raise ValueError(f"{path} has {len(mine)} mutants, more than {SPACE}: divide the file")
        head = f'#include "{runtime}"\n#line 1\n'.encode()
        text = (source / path).read_bytes()
        write_if_changed(work / "source" / path, head + rewrite(text, of_file, first))
        mutants += mine
    return mutants


def compile_programs(config, work):
    """Configures and builds the test programs of the copy."""
    build = work / "build"
    configure = ["cmake", "-S", str(work / "source"), "-B", str(build), "-G", "Ninja",
                 "-DCMAKE_BUILD_TYPE=Mutation", "-DCMAKE_CXX_FLAGS_MUTATION=-O1 -w",
                 *config["configure"]]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    environment = os.environ | {"CCACHE_BASEDIR": str(work), "CCACHE_NOHASHDIR": "1"}
    subprocess.run(["cmake", "--build", str(build), "-j", str(config["jobs"]), "--target",
                    *config["programs"]], check=True, env=environment, stdout=sys.stderr)
