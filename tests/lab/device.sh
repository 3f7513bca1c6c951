# shellcheck shell=bash
# lab: --guests 2 --rxe 0
# The verbs device against Linux's rdma_rxe: programs of libibverbs, unchanged, on both sides of a
# wire, each as the server once.
. "$(dirname "$0")/lib.sh"

if ((rank == 0)); then
  await_gid rxe0 "${peers[0]}"
  gid=1 device=rxe0
else
  export PACECAR_NICS=soft:udp:eth0 LD_PRELOAD=$BUILD/net_plugin/verbs/libpacecar-verbs.so
  gid=0 device=pacecar_eth0
fi

# both SERVER COMMAND...: on both machines; $gid_flag names the GID.
both() {
  local server=$1 name="$2 ${*:4}, served by rank $1" gid_flag=$3
  shift
  local command=("$1" -d "$device" "$gid_flag" "$gid" "${@:3}")
  port=$((port + 1))
  command+=(-p "$port")
  if ((rank == server)); then
    # The watcher lets the client go.
    (await_listener "$port" && meet "device$port") &
  else
    meet "device$port"
    command+=("${peers[server]}")
  fi
  LIMIT=60 check "$name" "${command[@]}"
  wait
}

for server in 0 1; do
  both "$server" ibv_rc_pingpong -g -c -n 200
  both "$server" ibv_rc_pingpong -g -c -n 100 -s 60000 -m 4096
  both "$server" ibv_ud_pingpong -g -c -n 100 -s 1024
  both "$server" ibv_uc_pingpong -g -c -n 100
  both "$server" ibv_srq_pingpong -g -c -n 100 -q 2
  both "$server" ib_write_bw -x -n 200 -F -s 65536
  both "$server" ib_read_bw -x -n 100 -F -s 65536
  # A server that polls takes all of its one processor.
  both "$server" ib_send_bw -x -n 100 -F -s 65536 -e
  both "$server" ib_send_bw -x -n 100 -F -c UD -s 1024
  both "$server" ib_send_bw -x -n 100 -F -c UC -s 1024 # fits into the buffers: UC repeats nothing
  both "$server" ib_write_bw -x -n 100 -F -c UC -s 65536
  both "$server" ib_atomic_bw -x -n 100 -F
  both "$server" ib_atomic_lat -x -n 50 -F -A CMP_AND_SWAP
  both "$server" ib_write_lat -x -n 50 -F
done

# Devices of other providers work next to ours as before.
if ((rank == 0)); then
  export LD_PRELOAD=$BUILD/net_plugin/verbs/libpacecar-verbs.so
  check_says "rxe0 is listed beside ours" "pacecar_eth0" ibv_devices
  check_says "rxe0 is examined beside ours" "PORT_ACTIVE" ibv_devinfo -d rxe0
fi
both 0 ibv_rc_pingpong -g -c -n 100
finish
