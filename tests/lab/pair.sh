# shellcheck shell=bash
# lab: --guests 2 --cpus 2 --memory 2048
# Two machines over verbs: NCCL's all-reduce, and faults in the middle of a run; over two joined
# NICs, too.
. "$(dirname "$0")/lib.sh"

export PACECAR_NICS=rxe0

((rank == 0)) && begin_capture verbs.pcap
all_reduce -b 8 -e 4M -f 8 -n 1
check "all-reduce over verbs" "${job[@]}"
interop rxe0
((rank == 0)) && end_capture

tc qdisc replace dev eth0 root netem loss 1%
all_reduce -b 8 -e 1M -f 8 -n 2
check "all-reduce with 1% of the packets lost" "${job[@]}"
tc qdisc del dev eth0 root

# The device is deleted in the middle of a run: the job goes on with its open device, or fails with
# the device's name. rdma_rxe keeps the device for processes that use it.
all_reduce -b 256K -e 256K -n 30
if ((rank == 1)); then
  (await_bytes eth0 2000000 && rdma link delete rxe0) &
fi
check_survives "all-reduce whose device is deleted" 'rxe0' "${job[@]}"
wait
if ((rank == 1)); then
  rdma link add rxe0 type rxe netdev eth0
  await_gid rxe0 "${peers[1]}"
fi

# flap SECONDS: eth0 is down for SECONDS. Its neighbours are added again, as the laboratory did.
flap() {
  local neighbours address ethernet
  neighbours=$(ip neighbour show nud permanent dev eth0)
  ip link set eth0 down
  sleep "$1"
  ip link set eth0 up
  while read -r address _ ethernet _; do
    ip neighbour replace "$address" lladdr "$ethernet" dev eth0 nud permanent
  done <<<"$neighbours"
}

# The link is down for three seconds in the middle of a run, or for longer on a busy machine: what
# fails meanwhile comes back.
all_reduce -b 256K -e 256K -n 40
if ((rank == 1)); then
  (await_bytes eth0 2000000 && flap 3) &
fi
TIMEOUT=15 check "all-reduce while the link is down for 3 s" "${job[@]}"

# A second NIC of each machine, over the same cable. Its neighbour is given, as for eth0: while a
# packet of a queue pair that is destroyed waits longer than 0.8 s for ARP, rdma_rxe of Linux 6.1
# frees the queue pair under it, and the kernel may panic. One end of the NIC goes down for good.
address=10.78.0.$((rank + 1))
raise_eth1() {
  ip link set eth1 up
  ip neighbour replace "10.78.0.$((2 - rank))" lladdr "02:78:00:00:00:0$((2 - rank))" dev eth1 \
    nud permanent
}
ip link add eth1 address "02:78:00:00:00:0$((rank + 1))" mtu 8900 type gretap \
  local "${peers[rank]}" remote "${peers[1 - rank]}"
ip address add "$address/24" dev eth1
raise_eth1
rdma link add rxe1 type rxe netdev eth1
await_gid rxe1 "$address"
all_reduce -b 256K -e 256K -n 40
job=(env PACECAR_NICS=rxe0+rxe1 "${job[@]}")
if ((rank == 1)); then
  (await_bytes eth1 2000000 && ip link set eth1 down) &
fi
TIMEOUT=15 check_says "all-reduce over two NICs joined, one of which is cut off" 'rxe1 is lost' \
  "${job[@]}"
raise_eth1
await_gid rxe1 "$address"

# Both go down, for longer than anybody waits.
meet bond
bw=("$BUILD/bench/pacecar" bw -s 262144 -D 600 --quiet)
if ((rank == 1)); then
  await 60 eval '(: >/dev/tcp/guest0/18515) 2>/dev/null'
  bw+=(guest0)
fi
be_patient
if ((rank == 0)); then
  (await_bytes eth1 2000000 && flap $((12 * slower))) &
fi
PACECAR_NICS=rxe0+rxe1 TIMEOUT=5 check_error "a stream over two NICs joined, both of which are \
cut off" "peer ${peers[1 - rank]}" "${bw[@]}"
if ((rank == 0)); then
  wait $!
  verdict "they were cut off while it ran" $?
fi
check_kernel_log
finish
