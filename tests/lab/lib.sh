# shellcheck shell=bash
# What the suites share. BUILD is the build folder; LAB_* come from the laboratory.
set -uo pipefail

passed=0
failed=0
rank=$LAB_RANK
share=$LAB_SHARE
root=$(dirname "${BASH_SOURCE[0]}")/../..
read -ra peers <<<"$LAB_PEERS"
plugin=$BUILD/net_plugin/libnccl-net-pacecar.so
export NO_COLOR=1

has_dpdk() { [[ -e $BUILD/modules/libpacecar-dpdk.so ]]; }

# verdict NAME STATUS [LOG]: with the seconds that have passed since the suite began.
verdict() {
  if (($2 == 0)); then
    passed=$((passed + 1))
    echo "ok: $1 (at $SECONDS s)"
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

# check_says NAME PATTERN COMMAND...: passes when COMMAND succeeds and prints what PATTERN (of grep
# -E) describes.
check_says() {
  local name=$1 pattern=$2 log status=0
  shift 2
  log=$(mktemp)
  timeout --kill-after 5 "${LIMIT:-120}" "$@" >"$log" 2>&1 || status=$?
  ((status == 0)) && ! grep -qE "$pattern" "$log" && name+=" (does not say: $pattern)" status=1
  verdict "$name" "$status" "$log"
  rm -f "$log"
}

# check_error NAME PATTERN COMMAND...: passes when COMMAND fails, by itself and in time, with an
# error that PATTERN describes.
check_error() { judge 1 "$@"; }
# check_survives NAME PATTERN COMMAND...: likewise, or when it succeeds.
check_survives() { judge 0 "$@"; }
judge() {
  local must_fail=$1 name=$2 pattern=$3 log status=0
  shift 3
  log=$(mktemp)
  timeout --kill-after 5 "${LIMIT:-120}" "$@" >"$log" 2>&1 || status=$?
  if ((status == 0)); then
    verdict "$name" "$must_fail" "$log"
  elif ((status != 124 && status != 137)) && grep -qE "$pattern" "$log"; then
    verdict "$name (failed, and said so)" 0
  else
    verdict "$name ($pattern)" "$status" "$log"
  fi
  rm -f "$log"
}

# meet NAME: waits until all guests are here.
meet() { "$root/deploy/lab/barrier" "$1"; }

# all_reduce FLAGS...: sets `job` to this rank's part of the plugin's all-reduce over all guests, in
# which every element is checked, when all are ready for it.
port=20000
all_reduce() {
  port=$((port + 1))
  meet "job$port"
  job=("$BUILD/bench/nccl/collective_bench" --plugin "$plugin" --ranks "$LAB_GUESTS"
    --rank "$rank" --root "${peers[0]}" --port "$port" "$@")
}

# interop NIC: SEND, WRITE, WRITE_WITH_IMM and READ in many sizes, both ways, byte for byte, between
# rank 0 and rank 1, each with its NIC.
interop() {
  port=$((port + 1))
  meet "interop$port"
  local role=(--server "$port")
  ((rank == 0)) || role=(--client "${peers[0]}:$port")
  LIMIT=240 check "interop, $1" "$BUILD/tests/interop_peer" --nic "$1" "${role[@]}"
}

await_listener() {
  local tries=300
  until [[ -n $(ss -Hltn "sport = :$1") ]] || ((--tries == 0)); do sleep 0.1; done
}

# await_gid DEVICE ADDRESS: an IPv4 address becomes a GID a moment after device and address are
# there.
await_gid() {
  local bytes pattern tries=100 # of 0.1 s
  IFS=. read -ra bytes <<<"$2"
  printf -v pattern ':ffff:%02x%02x:%02x%02x$' "${bytes[@]}"
  until grep -qs "$pattern" "/sys/class/infiniband/$1"/ports/1/gids/? || ((--tries == 0)); do
    sleep 0.1
  done
}

# await_bytes INTERFACE BYTES: until so many more have arrived there; fails where they do not, as
# when the job has ended before.
await_bytes() {
  local counter=/sys/class/net/$1/statistics/rx_bytes begin now give_up=$((SECONDS + 120))
  read -r begin <"$counter" || return
  until read -r now <"$counter" && ((now >= begin + $2)); do
    ((SECONDS < give_up)) || return
    sleep 0.05
  done
}

# Packets on eth0 to FILE in the share, until end_capture.
begin_capture() {
  dumpcap -q -i eth0 -f 'udp port 4791' -a filesize:20000 -w "/tmp/$1" >/dev/null 2>&1 &
  capture=$!
  capture_file=$1
  local tries=100 # of 0.1 s, until it listens
  until [[ -s /tmp/$1 ]] || ((--tries == 0)); do sleep 0.1; done
}
end_capture() {
  kill -INT "$capture" 2>/dev/null
  wait "$capture"
  cp "/tmp/$capture_file" "$share/"
}

# What the kernel says when a packet's ICRC is wrong, or its device broke; not the "bug:" of a
# machine's timer that a slow boot finds.
check_kernel_log() {
  local log
  log=$(mktemp)
  dmesg | grep -E '\b(ICRC|icrc)\b|BUG:|WARNING:|\bOops\b' >"$log"
  verdict "the kernel complains of no ICRC and no fault" $((1 - $?)) "$log"
}

finish() {
  echo "$passed passed, $failed failed"
  exit $((failed > 0))
}
