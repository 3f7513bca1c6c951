# shellcheck shell=bash
# lab: --guests 1 --memory 2048
# One machine with two devices, each talking to itself: what every NIC must do, the plugin under a
# host that behaves as NCCL does, and the two joined to one NIC, of which one breaks.
. "$(dirname "$0")/lib.sh"

LIMIT=240 check "NIC conformance on rxe0" "$BUILD/tests/nic_verbs_test"

# Next to no memory may be locked there, as in a container with its defaults.
unlocked=(bash -c 'ulimit -l 64 && exec "$@"' -
  setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock)
check_says "software NICs where memory cannot be locked" 'until then software NICs are used' \
  "${unlocked[@]}" "$BUILD/bench/pacecar" info
check_error "there an RDMA NIC that is named is an error" 'ulimit -l unlimited' \
  "${unlocked[@]}" "$BUILD/bench/pacecar" info -d rxe0

ip link add eth1 mtu 9000 type veth peer name far
ip address add 192.0.2.1/24 dev eth1
ip link set far up
ip link set eth1 up
rdma link add rxe1 type rxe netdev eth1
await_gid rxe1 192.0.2.1
PLUGIN_TEST_NICS=rxe0 PLUGIN_TEST_ADDRESS=${peers[0]} TIMEOUT=5 LIMIT=240 \
  check "one-sided operations on rxe0" "$BUILD/tests/plugin_one_sided_test" \
  "--gtest_filter=OneSidedOrder*:OneSidedFailure*:*EachRankPutsToAndGetsFromAllRanks/3"
export PLUGIN_TEST_NICS=rxe0,rxe1 PLUGIN_TEST_ADDRESS=${peers[0]}
# plugin VERSION TESTS...: through this version of the table.
plugin() {
  PLUGIN_TEST_VERSION=$1 TIMEOUT=${TIMEOUT:-1} LIMIT=240 check "plugin v$1 on two devices: ${*:2}" \
    "$BUILD/tests/plugin_test" "--gtest_filter=$(IFS=: && echo "${*:2}")"
}
# More than four ranks take an emulated machine long. Tests without a device are left out:
# ctest runs all tests over the software NIC.
plugin 12 Connect.{ManyConnects,ClosedConnections}'*' 'Transfer*' 'CollectiveOfThreads*' \
  'Ranks/Collective.*/2' Gpu.{EverySize,Slices,TwoProcesses}'*' '-*ABadNetwork'
# The older versions have the failures in turn.
failures=(Failure.AnAborted{Receiver,Sender} Failure.{CloseDoesNot,AFinalize}
  LostPeer.{AcceptAndReceiveFailIfTheCallerIsK,ConnectAndSendFailIfTheListenerIsK})
for version in {6..11}; do
  TIMEOUT=3 plugin "$version" 'Transfer.TagsChoose*' "Ranks/Collective.*/$((version % 2))" \
    "${failures[version - 6]}*"
done

TIMEOUT=3 plugin 12 'LostPeer.*'{Exits,NeverCalls,NeverAccepts}

# bond VERSION COMMAND: COMMAND breaks the second device in the middle of a transfer.
bond() {
  PLUGIN_TEST_VERSION=$1 PLUGIN_TEST_BREAK=$2 check "plugin v$1 on two devices joined: $2" \
    "$BUILD/tests/plugin_test" "--gtest_filter=PluginBond*"
}
bond 6 'ip link set eth1 down'
ip link set eth1 up
await_gid rxe1 192.0.2.1
bond 9 'ip address delete 192.0.2.1/24 dev eth1'
ip address add 192.0.2.1/24 dev eth1
await_gid rxe1 192.0.2.1
bond 12 'ip link delete eth1 &' # which returns when nobody uses the device any more
check_kernel_log
finish
