# shellcheck shell=bash
# What the suites share. BUILD is the build folder; PACECAR_LAB_* come from the laboratory.
set -uo pipefail

passed=0
failed=0
rank=$PACECAR_LAB_RANK
share=$PACECAR_LAB_SHARE
read -ra peers <<<"$PACECAR_LAB_PEERS"
plugin=$BUILD/net_plugin/libnccl-net-pacecar.so
export NO_COLOR=1

# verdict NAME STATUS [LOG]
verdict() {
  if (($2 == 0)); then
    passed=$((passed + 1))
    echo "ok: $1"
  else
    failed=$((failed + 1))
    echo "not ok: $1 (exit status $2)"
    [[ -z ${3-} ]] || tail -n 40 "$3"
  fi
}

# check NAME COMMAND...: passes when COMMAND ends well within its time.
check() {
  local name=$1 log status=0
  shift
  log=$(mktemp)
  timeout --kill-after 5 "${LIMIT:-120}" "$@" >"$log" 2>&1 || status=$?
  verdict "$name" "$status" "$log"
  rm -f "$log"
}

# check_error NAME PATTERN COMMAND...: passes when COMMAND fails, by itself and in time, with an
# error that PATTERN (of grep -E) describes.
check_error() {
  local name=$1 pattern=$2 log status=0
  shift 2
  log=$(mktemp)
  timeout --kill-after 5 "${LIMIT:-120}" "$@" >"$log" 2>&1 || status=$?
  if ((status != 0 && status != 124 && status != 137)) && grep -qE "$pattern" "$log"; then
    verdict "$name" 0
  else
    verdict "$name ($pattern)" $((status == 0 ? 1 : status)) "$log"
  fi
  rm -f "$log"
}

# meet NAME: waits until all guests are here.
meet() {
  : >"$share/$1.$rank"
  local tries=1200 # of 0.1 s
  local here=("$share/$1".*)
  until ((${#here[@]} == PACECAR_LAB_GUESTS)); do
    here=("$share/$1".*)
    tries=$((tries - 1))
    ((tries > 0)) || return 1
    sleep 0.1
  done
}

# all_reduce FLAGS...: sets `job` to this rank's part of the plugin's all-reduce over all guests, in
# which every element is checked, when all are ready for it.
port=20000
all_reduce() {
  port=$((port + 1))
  meet "job$port"
  job=("$BUILD/bench/nccl/ring_allreduce" --plugin "$plugin" --ranks "$PACECAR_LAB_GUESTS"
    --rank "$rank" --root "${peers[0]}" --port "$port" "$@")
}

# Packets on eth0 to FILE in the share, until end_capture.
begin_capture() {
  dumpcap -q -i eth0 -f 'udp port 4791' -a filesize:20000 -w "/tmp/$1" >/dev/null 2>&1 &
  capture=$!
  capture_file=$1
  sleep 1
}
end_capture() {
  kill -INT "$capture" 2>/dev/null
  wait "$capture"
  cp "/tmp/$capture_file" "$share/"
}

# What the kernel says when a packet's ICRC is wrong, or its device broke.
check_kernel_log() {
  local log
  log=$(mktemp)
  dmesg | grep -iE 'ICRC|BUG:|WARNING:|Oops' >"$log"
  verdict "the kernel complains of no ICRC and no fault" $((1 - $?)) "$log"
}

finish() {
  echo "$passed passed, $failed failed"
  exit $((failed > 0))
}
