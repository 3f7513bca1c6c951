# shellcheck shell=bash
# lab: --guests 2 --cpus 2 --memory 2048 --may-die 1
# A machine dies in the middle of a run: the other's error names device, peer and cause in time.
. "$(dirname "$0")/lib.sh"

export PACECAR_NICS=rxe0
all_reduce -b 256K -e 256K --seconds 600
if ((rank == 1)); then
  (await_bytes eth0 2000000 && echo b >/proc/sysrq-trigger) &
  "${job[@]}"
fi
TIMEOUT=5 check_error "the peer's machine dies" "rxe0.*${peers[1]}|${peers[1]}.*rxe0" "${job[@]}"
finish
