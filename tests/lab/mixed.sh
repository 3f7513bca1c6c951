# shellcheck shell=bash
# lab: --guests 2 --rxe 0
# One machine with rdma_rxe, one with the software NIC in the roce wire mode: each operation between
# them byte by byte, and a job of both.
. "$(dirname "$0")/lib.sh"

export PACECAR_WIRE=roce
# The control plane of both is TCP. UDP port 4791 is the kernel's on rank 0, and ours on rank 1.
if ((rank == 0)); then nic=rxe0; else nic=soft:udp:eth0; fi

((rank == 1)) && begin_capture roce.pcap
interop "$nic"
((rank == 1)) && end_capture

export PACECAR_NICS=$nic
all_reduce -b 8 -e 1M -f 8 -n 2
check "all-reduce of verbs and softnic" "${job[@]}"
check_kernel_log
finish
