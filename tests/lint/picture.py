"""The picture of the layers in transport/README.md agrees with the #include lines."""

import graphlib
import importlib.util
import pathlib

GRAPH = "transport/pictures/layers.dot"
DRAW = pathlib.Path(__file__).resolve().parents[2] / "transport/pictures/draw.py"


def check(tree, _built=()):
    files = [(path.as_posix(), tree.text(path)) for path in tree.cpp_files()]
    try:
        drawn = drawing().graph([file for file in files if drawing().box_of(file[0])])
    except graphlib.CycleError as error:
        return [f"folders include each other: {' <- '.join(error.args[1])}"]
    committed = tree.root / GRAPH
    if committed.is_file() and committed.read_text(encoding="utf-8") == drawn:
        return []
    return [f"{GRAPH} is not what the #include lines say: run "
            "`python3 transport/pictures/draw.py` and look at what has changed"]


def drawing():
    spec = importlib.util.spec_from_file_location("draw", DRAW)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
