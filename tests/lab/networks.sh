# shellcheck shell=bash
# lab: --guests 3 --cpus 2 --memory 2048 --rxe 0,1
# A job whose ranks have NICs of different networks, in different orders: each pair is joined over
# one that both have. Where there is none, the error says what each has.
. "$(dirname "$0")/lib.sh"

# ring NAME NICS-OF-RANK-0 NICS-OF-RANK-1 NICS-OF-RANK-2: an all-reduce around the three.
ring() {
  local name=$1
  shift
  local nics=("$@")
  export PACECAR_NICS=${nics[rank]}
  all_reduce -b 8 -e 1M -f 8 -n 2
  check "$name" "${job[@]}"
}
ring "two networks" rxe0,soft:udp:eth0 soft:udp:eth0,rxe0 soft:udp:eth0
if grep -q fi_getinfo "$plugin"; then
  ring "three networks, each pair has one" rxe0,ofi:tcp soft:udp:eth0,rxe0 ofi:tcp,soft:udp:eth0
else
  echo "left out: this build has no libfabric"
fi

# await_server: until one listens there; it passes over strangers.
await_server() { await 60 answers; }
answers() { (: >/dev/tcp/guest0/18515) 2>/dev/null; }
bw=("$BUILD/bench/pacecar" bw -s 65536 -n 100 --data_validation)
meet bandwidth
case $rank in
  0)
    PACECAR_NICS=rxe0,soft:udp:eth0 check_says "a server's second NIC, of which it reports" \
      '"Device": "soft:udp:eth0"' "${bw[@]}" --out_json_file -
    ;;
  2)
    await_server
    PACECAR_NICS=soft:udp:eth0 check "its client" "${bw[@]}" guest0
    ;;
esac

# alone NIC NETWORK: rank 0 has only NIC, of NETWORK, and rank 2 only the software NIC.
alone() {
  local said='share no kind of network: guest2 .* has soft:udp:eth0 \(soft[^)]*\), '
  said+="guest0 .* has $1 \($2[^)]*\);"
  meet "alone $1"
  if ((rank == 0)); then
    # It goes on: the next client may have one in common.
    local log status=0
    log=$(mktemp)
    PACECAR_NICS=$1 "${bw[@]}" >"$log" 2>&1 &
    meet "refused by $1"
    await 30 grep -qE "$said" "$log" || status=1 # the client gets the reason before the log does
    kill -0 $! || status=1
    verdict "the server, $1" "$status" "$log"
    kill $!
    wait $!
    rm -f "$log"
    return
  fi
  if ((rank == 2)); then
    await_server
    PACECAR_NICS=soft:udp:eth0 check_error "the client of $1" "$said" "${bw[@]}" guest0
  fi
  meet "refused by $1"
}
alone rxe0 roce
if grep -q fi_getinfo "$plugin"; then alone ofi:tcp 'ofi:tcp;ofi_rxm'; fi
check_kernel_log
finish
