# shellcheck shell=bash
# lab: --guests 1 --memory 2048
# One machine with two devices, each talking to itself: what every NIC must do, and the plugin under
# a host that behaves as NCCL does.
. "$(dirname "$0")/lib.sh"

LIMIT=240 check "NIC conformance on rxe0" "$BUILD/tests/nic_verbs_test"

ip link add eth1 mtu 9000 type veth peer name far
ip address add 192.0.2.1/24 dev eth1
ip link set far up
ip link set eth1 up
rdma link add rxe1 type rxe netdev eth1
tries=100 # of 0.1 s: the address becomes a GID a moment later
until grep -q ':c000:0201$' /sys/class/infiniband/rxe1/ports/1/gids/1 || ((--tries == 0)); do
  sleep 0.1
done
export PLUGIN_TEST_NICS=rxe0,rxe1 PLUGIN_TEST_ADDRESS=${peers[0]}
# plugin VERSION TESTS...: through this version of the table.
plugin() {
  PLUGIN_TEST_VERSION=$1 LIMIT=240 check "plugin v$1 on two devices: ${*:2}" \
    "$BUILD/tests/plugin_test" "--gtest_filter=$(IFS=: && echo "${*:2}")"
}
# More than four ranks take an emulated machine long.
plugin 12 'Connect*' 'Transfer*' 'Failure*' 'CollectiveOfThreads*' 'Ranks/Collective.*/0' '*/1' \
  '*/2' 'Gpu.*' '-*SoftwareNic*'
# The older versions have the last kind of failure each in turn.
failures=(AnAbortedReceiver AnAbortedSender CloseDoesNot AFinalize AKilledReceiver AKilledSender)
for version in {6..11}; do
  plugin "$version" 'Transfer*' "Ranks/Collective.*/$((version % 2))" \
    "Failure.${failures[version - 6]}*" '-*AGpu*'
done
check_kernel_log
finish
