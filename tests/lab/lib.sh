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

# Sets `now` and `slowness`: seconds of the laboratory's clock (deploy/lab/clock.py), and by how
# much it lags, lately, in %.
look_at_clock() { read -r now slowness <"$share/.clock"; }
look_at_clock
began=$now

# Programs in the machine have limits of their own, and do not know that clock: sets `slower`, a
# factor for them. It has a margin, for the load may grow: 1 on a calm machine, 9 where a fifth of
# the time is left to us.
be_patient() {
  look_at_clock
  slower=$(((2 * slowness - 99) / 100))
  ((slower <= 12)) || slower=12
  export TESTS_SLOWER=$slower PACECAR_TIMEOUT=$((slower * ${TIMEOUT:-10}))s
  export PACECAR_CONNECT_TIMEOUT=$((slower * 10))s
}
be_patient

# await SECONDS COMMAND...: repeats COMMAND until it succeeds; fails after SECONDS.
await() {
  look_at_clock
  local end=$((now + $1))
  until "${@:2}"; do
    look_at_clock
    ((now < end)) || return 1
    sleep 0.1
  done
}

# limited COMMAND...: LIMIT is in seconds of the clock; TIMEOUT is what PACECAR_TIMEOUT would be
# on a machine that nobody disturbs.
limited() {
  be_patient
  "$root/deploy/lab/limit" "${LIMIT:-120}" "$@"
}

# verdict NAME STATUS [LOG]: with the seconds that have passed since the suite began, by the clock
# and in all.
verdict() {
  if (($2 == 0)); then
    passed=$((passed + 1))
    look_at_clock
    echo "ok: $1 (at $((now - began)) s, $SECONDS in all)"
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
  limited "$@" >"$log" 2>&1 || status=$?
  verdict "$name" "$status" "$log"
  rm -f "$log"
}

# check_says NAME PATTERN COMMAND...: passes when COMMAND succeeds and prints what PATTERN (of grep
# -E) describes.
check_says() {
  local name=$1 pattern=$2 log status=0
  shift 2
  log=$(mktemp)
  limited "$@" >"$log" 2>&1 || status=$?
  ((status == 0)) && ! grep -qE "$pattern" "$log" && name+=" (does not say: $pattern)" status=1
  verdict "$name" "$status" "$log"
  rm -f "$log"
}

# check_error NAME PATTERN COMMAND...: passes when COMMAND fails, by itself and in time, with an
# error that PATTERN describes.
check_error() { judge 1 "$@"; }
# check_survives NAME PATTERN COMMAND...: as check_error, but passes as well if COMMAND succeeds.
check_survives() { judge 0 "$@"; }
judge() {
  local must_fail=$1 name=$2 pattern=$3 log status=0
  shift 3
  log=$(mktemp)
  limited "$@" >"$log" 2>&1 || status=$?
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

# all_reduce FLAGS...: sets `job` to this rank's part of NCCL's all-reduce over all guests, with
# the flags of nccl-tests, in which every element is checked, when all are ready for it.
port=20000
all_reduce() {
  port=$((port + 1))
  meet "job$port"
  # Made on the host before; without it there is nothing to test.
  "$root/bench/nccl/cpu_device/get_nccl" 2.29.7 >/dev/null || exit 69
  job=("$root/bench/nccl/run" --cpu --build "$BUILD" --ops allreduce --repetitions 1
    --ranks "$LAB_GUESTS" --rank "$rank" --master "${peers[0]}:$port" "$@")
}

# interop NIC: WRITE, WRITE_WITH_IMM and READ in many sizes, both ways, byte for byte, between
# rank 0 and rank 1, each with its NIC.
interop() {
  port=$((port + 1))
  meet "interop$port"
  local role=(--server "$port")
  ((rank == 0)) || role=(--client "${peers[0]}:$port")
  LIMIT=240 check "interop, $1" "$BUILD/tests/interop_peer" --nic "$1" "${role[@]}"
}

# await_listener PORT: until somebody listens there, on this machine.
await_listener() { await 60 listens "$1"; }
listens() { [[ -n $(ss -Hltn "sport = :$1") ]]; }

# await_gid DEVICE ADDRESS: an IPv4 address becomes a GID a moment after device and address are
# there.
await_gid() {
  local bytes pattern
  IFS=. read -ra bytes <<<"$2"
  printf -v pattern ':ffff:%02x%02x:%02x%02x$' "${bytes[@]}"
  await 20 grep -qs "$pattern" "/sys/class/infiniband/$1"/ports/1/gids/?
}

# await_bytes INTERFACE BYTES: waits until BYTES more have arrived; fails if they do not arrive, as
# when the job has ended before.
await_bytes() {
  local counter=/sys/class/net/$1/statistics/rx_bytes bytes
  read -r bytes <"$counter" && await 120 has_received $((bytes + $2))
}
has_received() { read -r bytes <"$counter" && ((bytes >= $1)); }

# Packets on eth0 to FILE in the share, until end_capture.
begin_capture() {
  dumpcap -q -i eth0 -f 'udp port 4791' -a filesize:20000 -w "/tmp/$1" >/dev/null 2>&1 &
  capture=$!
  capture_file=$1
  await 20 test -s "/tmp/$1" # it listens
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
