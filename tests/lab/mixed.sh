# shellcheck shell=bash
# lab: --guests 2 --cpus 2 --memory 2048 --rxe 0
# One machine with rdma_rxe, one with the software NIC in the roce wire mode: each operation between
# them byte by byte, and a job of both. Over IPv6 the software NIC has UDP sockets, over IPv4 raw
# ones, over both DPDK's packet sockets. UDP port 4791 belongs to the kernel on rank 0, to us on 1.
. "$(dirname "$0")/lib.sh"

export PACECAR_WIRE=roce
# over NAME OURS GID: rank 1 uses the NIC OURS, rank 0 the index GID of rxe0.
over() {
  local nic=$2
  if ((rank == 0)); then
    nic=rxe0
    export PACECAR_GID_INDEX=$3
  fi
  ((rank == 1)) && begin_capture "roce-$1.pcap"
  interop "$nic"
  PACECAR_NICS=$nic all_reduce -b 8 -e 1M -f 8 -n 2
  PACECAR_NICS=$nic check "all-reduce of rxe0 and $2" "${job[@]}"
  ((rank == 1)) && end_capture
}
over ipv6 soft:udp:eth0 2
over ipv4 soft:raw:eth0 1
if has_dpdk; then
  over dpdk-ipv4 soft:dpdk:net_af_packet0,iface=eth0 1
  over dpdk-ipv6 soft:dpdk:net_af_packet0,iface=eth0,address=fd77::2 2
else
  echo "left out: this build has no DPDK"
fi
check_kernel_log
finish
