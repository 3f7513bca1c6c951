# shellcheck shell=bash
# lab: --guests 1 --rxe none
# A DPDK device that leaves other traffic to the kernel: net_tap's flow rules, which few kernels
# of virtual machines have, between two hosts with a router in between.
. "$(dirname "$0")/lib.sh"

check "modules" modprobe -a tun veth sch_ingress sch_multiq cls_flower act_mirred act_gact \
  act_skbedit
routed=$root/tests/integration/dpdk_router_test.py
LIMIT=240 check_says "steering by net_tap" "^OK$" python3 -B "$routed" "$BUILD" \
  Routed.test_shared_device_is_steered
finish
