#!/usr/bin/env bash
# collective_remote_test.sh PROGRAM PLUGIN OP: three ranks that know each other by TCP only.
set -euo pipefail
port=$((20000 + $$ % 12000))
run() {
  "$1" --plugin "$2" --ranks 3 --port "$port" --op "$3" -b 12 -e 1M -f 64 -n 2 "${@:4}"
}
run "$@" --rank 1 --root 127.0.0.1 &
first=$!
run "$@" --rank 2 --root 127.0.0.1 &
second=$!
run "$@" --rank 0 --root 127.0.0.1
wait "$first"
wait "$second"
