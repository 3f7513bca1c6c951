# shellcheck shell=bash
# lab: --guests 1 --memory 2048
# What every change is tested by over an RDMA device, in one machine that is booted once: the NIC,
# the plugin's oldest and newest table, bandwidth and latency. The other suites take longer.
. "$(dirname "$0")/lib.sh"

export PACECAR_NICS=rxe0
LIMIT=240 check "NIC conformance on rxe0" "$BUILD/tests/nic_verbs_test" --gtest_brief=1 \
  '--gtest_filter=-*four_lanes*'

export PLUGIN_TEST_NICS=rxe0 PLUGIN_TEST_ADDRESS=${peers[0]}
for version in 6 12; do
  PLUGIN_TEST_VERSION=$version LIMIT=240 check "plugin v$version over rxe0" \
    "$BUILD/tests/plugin_test" --gtest_brief=1 \
    "--gtest_filter=Transfer.TagsChoose*:Ranks/Collective.*/0"
done

# pair KIND FLAGS...: `pacecar KIND` between a server and a client of this machine.
pair() {
  port=$((port + 1))
  limited "$BUILD/bench/pacecar" "$1" -p "$port" >/tmp/server.log 2>&1 &
  await_listener "$port"
  check "pacecar $* over rxe0" "$BUILD/bench/pacecar" "$1" "${peers[0]}" -p "$port" "${@:2}"
  wait $!
  verdict "pacecar $1 over rxe0, the server" $? /tmp/server.log
}
pair bw -s 64K -n 100 --data_validation
pair lat -s 8 -n 200
check_kernel_log
finish
