# shellcheck shell=bash
# lab: --guests 1 --memory 2048
# One machine, its rxe0 talking to itself: what every NIC must do, and the plugin under a host that
# behaves as NCCL does.
. "$(dirname "$0")/lib.sh"

LIMIT=240 check "NIC conformance on rxe0" "$BUILD/tests/nic_verbs_test"
export PLUGIN_TEST_NICS=rxe0 PLUGIN_TEST_ADDRESS=${peers[0]}
for group in 'Connect*' 'Transfer*' 'Collective*' 'Failure*'; do
  LIMIT=240 check "plugin on rxe0: $group" "$BUILD/tests/plugin_test" "--gtest_filter=$group"
done
check_kernel_log
finish
