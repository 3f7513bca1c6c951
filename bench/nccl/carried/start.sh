#!/bin/sh
# The one command of a bundle: finds a Python that serves, and starts main.py with it.
here=$(cd "$(dirname "$0")" && pwd) || exit 2
for python in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 \
  python3.10; do
  if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    exec "$python" -B "$here/bench/nccl/carried/main.py" "$@"
  fi
done
echo "run: no Python from 3.10 on is found: install python3, or name one, as in" \
  "PYTHON=/opt/x/bin/python3 ./run" >&2
exit 77
