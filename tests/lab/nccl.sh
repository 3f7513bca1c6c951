# shellcheck shell=bash
# lab: --guests 2 --cpus 2 --memory 2048
# NCCL itself over rdma_rxe, on the CPU device: by the plugin, and by its own use of RDMA devices.
. "$(dirname "$0")/lib.sh"

# Made on the host before; without it there is nothing to test.
"$root/bench/nccl/cpu_device/get_nccl" >/dev/null || exit 69

# nccl TEST: one of nccl_test.py's class Rdma.
nccl() {
  LIMIT=400 check "NCCL: $1" python3 -B "$root/tests/nccl/nccl_test.py" "$BUILD" "Rdma.test_$1"
}
if ((rank == 0)); then
  nccl ranks_of_one_machine
  nccl a_killed_rank_is_an_error_for_the_others
fi
meet pair
nccl a_rank_on_each_machine
check_kernel_log
finish
