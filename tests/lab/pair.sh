# shellcheck shell=bash
# lab: --guests 2
# Two machines over verbs: the plugin's all-reduce, and faults in the middle of it.
. "$(dirname "$0")/lib.sh"

export PACECAR_NICS=rxe0

((rank == 0)) && begin_capture verbs.pcap
all_reduce -b 8 -e 4M -f 8 -n 2
check "all-reduce over verbs" "${job[@]}"
interop rxe0
((rank == 0)) && end_capture

tc qdisc replace dev eth0 root netem loss 1%
all_reduce -b 8 -e 1M -f 8 -n 4
check "all-reduce with 1% of the packets lost" "${job[@]}"
tc qdisc del dev eth0 root

# The link is down for three seconds in the middle of a run, or for longer on a busy machine: what
# fails meanwhile comes back.
all_reduce -b 256K -e 256K -n 400
job=(env PACECAR_TIMEOUT=30s "${job[@]}")
if ((rank == 1)); then
  (sleep 3 && ip link set eth0 down && sleep 3 && ip link set eth0 up) &
fi
check "all-reduce while the link is down for 3 s" "${job[@]}"

# The device goes away in the middle of a run: the job goes on with what it has, or fails with the
# device's name.
all_reduce -b 256K -e 256K -n 400
if ((rank == 1)); then
  (sleep 3 && rdma link delete rxe0) &
fi
check_survives "all-reduce whose device is deleted" 'rxe0' "${job[@]}"
check_kernel_log
finish
