# shellcheck shell=bash
# lab: --guests 1 --rxe none
# The software NIC in the roce wire mode against itself, between two network namespaces: every
# operation byte by byte, over raw sockets and DPDK's packet sockets and IPv4, and over UDP sockets
# and IPv6.
. "$(dirname "$0")/lib.sh"

export PACECAR_WIRE=roce
ip netns add far
ip link add near0 mtu 4200 type veth peer name far0 mtu 4200 netns far
for command in "link set near0 up" "address add 192.0.2.1/24 dev near0" \
  "address add fd00:4791::1/64 dev near0 nodad"; do
  # shellcheck disable=SC2086
  ip $command
done
for command in "link set far0 up" "link set lo up" "address add 192.0.2.2/24 dev far0" \
  "address add fd00:4791::2/64 dev far0 nodad"; do
  # shellcheck disable=SC2086
  ip -n far $command
done

# between KIND: near0 and far0, each with a NIC of this kind, whose name the interface completes.
between() {
  port=$((port + 1))
  LIMIT=240 limited ip netns exec far "$BUILD/tests/interop_peer" --nic "soft:$1far0" \
    --server "$port" >/tmp/far.log 2>&1 &
  LIMIT=240 check "interop, soft:$1 and soft:$1" "$BUILD/tests/interop_peer" --nic "soft:$1near0" \
    --client "192.0.2.2:$port"
  wait $!
  verdict "interop, soft:$1 and soft:$1, the far side" $? /tmp/far.log
}
between raw:
between udp:
if has_dpdk; then between dpdk:net_af_packet0,iface=; fi
finish
