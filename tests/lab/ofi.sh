# shellcheck shell=bash
# lab: --guests 1 --memory 2048
# libfabric's verbs;ofi_rxm over a device that talks to itself: what every NIC must do, and the
# plugin under a host that behaves as NCCL does.
. "$(dirname "$0")/lib.sh"

# rdma_rxe's completion queues are too small for the 256 peers that libfabric makes room for.
check_error "the error where queues are too small says how to cure it" 'set FI_UNIVERSE_SIZE=64' \
  "$BUILD/bench/pacecar" lat -d 'ofi:verbs;ofi_rxm'
export FI_UNIVERSE_SIZE=64
# conformance NAME TESTS: what finds no device is skipped, and says no "OK".
conformance() {
  LIMIT=240 check_says "$1" 'OK \] .*WriteCompletes.*/verbs' "$BUILD/tests/nic_ofi_test" \
    "--gtest_filter=$2"
}
conformance "NIC conformance, as libfabric is without being told" '*Write*/verbs_four_paths'
# An emulated machine takes long to pin the buffers and queues of each connection, which nobody
# fills, and to make the connection.
export FI_OFI_RXM_USE_SRX=1 FI_OFI_RXM_BUFFER_SIZE=1024 FI_OFI_RXM_{,MSG_}{RX,TX}_SIZE=64 \
  FI_VERBS_{RX,TX}_SIZE=64
conformance "NIC conformance" '*/verbs:*Immediate*/verbs_notify*'

export PLUGIN_TEST_NICS='ofi:verbs;ofi_rxm' PLUGIN_TEST_ADDRESS=${peers[0]}
plugin_tests=(Connect.{ManyConnects,ClosedConnections}'*' 'Transfer*' 'Failure*'
  'CollectiveOfThreads*' 'Ranks/Collective.*/2' '-*ABadNetwork')
TIMEOUT=4 LIMIT=240 check "the plugin" "$BUILD/tests/plugin_test" \
  "--gtest_filter=$(IFS=: && echo "${plugin_tests[*]}")"
check_kernel_log
finish
