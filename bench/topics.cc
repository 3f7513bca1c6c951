#include "bench/topics.h"

#include <algorithm>
#include <iterator>

namespace pacecar {
namespace {

struct Topic {
  std::string_view name;
  std::string_view text;
};

constexpr Topic kTopics[] = {
    {"measure", R"(server$ pacecar bw                      wait for a client
client$ pacecar bw server               64 KiB messages, 1000 of them
client$ pacecar bw -a server            all sizes from 2 to 2^23 bytes
client$ pacecar bw -D 10 -q 4 server    four connections for ten seconds
client$ pacecar lat -n 10000 server     half of a round trip (server: pacecar lat)
pacecar bw --hosts gpu[01-16]           all pairs of 16 hosts, over ssh: who is slow?
pacecar bw --hosts slurm --launch srun --least 0.8 --html matrix.html

What they do not do: RDMA reads and atomics; unreliable transports and multicast; NCCL's
collectives (pacecar-nccl runs these).
)"},
    {"diagnose",
     R"(pacecar preflight                       examine this host before a job runs on it
pacecar preflight --hosts gpu[01-16]    examine all hosts, and the paths between them
pacecar doctor                          why does the job here hang, or go no faster?
pacecar doctor --hosts node1,node2      one verdict on a job of several hosts
pacecar top                             NICs and flows, live
pacecar metrics --listen                serve Prometheus what the processes count
pacecar info -c                         every parameter, its value and where it came from

What they do not do: change a host (they print the cure); look into switches (only what a path
shows at its ends); see jobs that do not run over Pacecar.
)"},
    {"simulate", R"(pacecar sim --workload incast:senders=32,bytes=1MB --cc swift
                                        32 hosts send to one, on 128 hosts at 100 Gb/s
pacecar sim --list                      topologies, workloads, algorithms and metrics
pacecar ab bench/plans/smoke.toml       a plan: all its runs, summary and report
pacecar ab --a PACECAR_CC=swift --b PACECAR_CC=fixed -- COMMAND
                                        one command under two settings, in turn
pacecar switch --port veth0 --port veth1 --rate 200M
                                        a switch with these queues between real interfaces
Installed, the plans lie in share/pacecar/plans.

What they do not do: bit errors of links; PCIe and memory of the hosts; adaptive routing of
switches; more than some thousand hosts in minutes.
)"},
    {"plan", R"(pacecar predict --hosts 64 --op alltoall
                                        its time by size, and what limits it
pacecar predict --hosts 12500 --set topology.hosts_per_leaf=32 --set topology.oversubscription=2
pacecar plan bench/plan/examples/hethub.toml
                                        a model on 768 accelerators of two kinds
Installed, the example lies in share/pacecar/examples.

What they do not do: measure; NCCL's times per step and NVLink are assumed, nothing is lost, and
other jobs are a share of the links. Confirm a choice with nccl-tests or pacecar-nccl.
)"},
    {"integrate", R"(NCCL_NET_PLUGIN=pacecar mpirun ... all_reduce_perf
                                        NCCL over Pacecar; nothing else changes
pacecar-nccl --cpu --sizes 4K,1M        NCCL over its own sockets and over Pacecar, without a GPU
pacecar check-plugin libnccl-net-x.so   every rule of NCCL's, pass or fail, and its speed
pacecar run -- ib_write_bw              a program of libibverbs, without an RDMA NIC
pacecar run --libfabric -- fi_pingpong -e rdm
find_package(Pacecar REQUIRED)          CMake of a C++ program: link Pacecar::pacecar

What they do not do: NCCL's CollNet (in-network reduction); XRC, DC and raw packets of libibverbs;
GPU memory of other vendors than NVIDIA.
)"},
    {"perftest", R"(Flags of ib_write_bw and ib_write_lat that work in bw and lat as well:
-T, --tos, --tclass N   IP type of service of data packets (PACECAR_TC)
-x, --gid-index N       PACECAR_GID_INDEX        --pkey_index N   PACECAR_PKEY
-S, --sl N              service level on InfiniBand (PACECAR_SL)
-i, --ib-port N         as -d mlx5_0:N           --ib-dev         as -d
-u, --qp-timeout N      peer timeout: 8 x 4.096 us x 2^N, from 0.1 s to 1 h (PACECAR_TIMEOUT)
-w, --limit_bw RATE     exit with 3 below this average, in the unit of the columns
-l, --post_list N       sends that are started together
-f, --margin SECONDS    with -D: excluded at the start and at the end
-N, --noPeak            0 as peak bandwidth      --report-both    with -b: both directions
--output WHAT           one figure alone: bandwidth, message_rate or latency
--latency_gap US        time between an answer and the next message
--cpu_util              a column with this process' CPU time
--source_ip ADDRESS     client: local address of the control connection
--use_cuda_bus_id ID    GPU by its PCI address   --use_cuda_dmabuf   PACECAR_GPU=direct
--out_json              --json=perftest_out.json --out_json_file FILE   --json=FILE
-c RC, -F, --CPU-freq, --perform_warm_up, --mr_per_qp, -q 1 of lat: no effect
Other flags of perftest are refused with the reason.
)"},
};

}  // namespace

const std::string_view* topic(std::string_view name) {
  const auto found = std::ranges::find(kTopics, name, &Topic::name);
  return found == std::end(kTopics) ? nullptr : &found->text;
}

}  // namespace pacecar
