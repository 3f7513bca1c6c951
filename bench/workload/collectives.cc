#include "bench/workload/collectives.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace pacecar {
namespace {

// Part `i` of `bytes` cut into `parts` as evenly as whole bytes go.
Bytes share(Bytes bytes, uint64_t parts, uint64_t i) {
  const Bytes more = bytes % parts;
  return bytes / parts + (i < more ? 1 : 0);
}

// One flow from the previous host of a ring has been received, and one to the next is done.
After received_and_sent(uint32_t received, uint32_t sent) {
  return {.received = {received}, .sent = {sent}};
}

// Steps of a ring: in step s host i sends share i + first_share - s to the next host. `after`: what
// each host waits for before its first step; returned: what it waits for after its last.
std::vector<After> ring_steps(FlowGraph& graph, Hosts ring, Bytes bytes, uint32_t first_share,
                              uint32_t steps, std::vector<After> after) {
  const auto n = static_cast<uint32_t>(ring.size());
  std::vector<uint32_t> flows(n);
  for (uint32_t step = 0; step < steps; ++step) {
    for (uint32_t i = 0; i < n; ++i) {
      const Bytes part = share(bytes, n, (i + first_share + n - step % n) % n);
      flows[i] = graph.add_after(after[i], ring[i], ring[(i + 1) % n], part);
    }
    for (uint32_t i = 0; i < n; ++i) {
      after[i] = received_and_sent(flows[(i + n - 1) % n], flows[i]);
    }
  }
  return after;
}

Workload ring(const char* name, Hosts hosts, Bytes bytes, uint32_t steps) {
  FlowGraph graph(name);
  ring_steps(graph, hosts, bytes, 0, steps, std::vector<After>(hosts.size()));
  return graph.take();
}

// Pieces of a message that hosts forward: a host sends piece p when it has received it, and when
// piece p - 1 to the same host is done.
class PieceTree {
 public:
  PieceTree(FlowGraph& graph, Hosts hosts, Bytes bytes, uint32_t pieces)
      : graph_(graph), hosts_(hosts), bytes_(bytes), pieces_(pieces) {}

  using Flows = std::vector<uint32_t>;  // by piece

  // `inputs`: flows whose piece p must have been received before piece p goes on.
  Flows send(uint32_t from, uint32_t to, const std::vector<Flows>& inputs) {
    Flows flows;
    for (uint32_t piece = 0; piece < pieces_; ++piece) {
      After after;
      for (const Flows& input : inputs) after.received.push_back(input[piece]);
      if (piece > 0) after.sent.push_back(flows.back());
      flows.push_back(
          graph_.add_after(after, hosts_[from], hosts_[to], share(bytes_, pieces_, piece)));
    }
    return flows;
  }

  std::vector<uint32_t> children(uint32_t host) const {
    std::vector<uint32_t> found;
    for (uint32_t child = 2 * host + 1; child <= 2 * host + 2; ++child) {
      if (child < hosts_.size()) found.push_back(child);
    }
    return found;
  }

  // Down to all; `root_inputs` as in send().
  void broadcast(const std::vector<Flows>& root_inputs) {
    std::vector<std::vector<Flows>> inputs(hosts_.size());
    inputs[0] = root_inputs;
    for (uint32_t host = 0; host < hosts_.size(); ++host) {
      for (const uint32_t child : children(host)) {
        inputs[child] = {send(host, child, inputs[host])};
      }
    }
  }

  // Up from all; returns what arrives at the root.
  std::vector<Flows> reduce() {
    std::vector<std::vector<Flows>> inputs(hosts_.size());
    for (auto host = static_cast<uint32_t>(hosts_.size() - 1); host > 0; --host) {
      const uint32_t parent = (host - 1) / 2;
      inputs[parent].push_back(send(host, parent, inputs[host]));
    }
    return inputs[0];
  }

 private:
  FlowGraph& graph_;
  Hosts hosts_;
  Bytes bytes_;
  uint32_t pieces_;
};

}  // namespace

Workload reduce_scatter(Hosts hosts, Bytes bytes) {
  return ring("reduce-scatter", hosts, bytes, static_cast<uint32_t>(hosts.size() - 1));
}

Workload all_gather(Hosts hosts, Bytes bytes) {
  return ring("all-gather", hosts, bytes, static_cast<uint32_t>(hosts.size() - 1));
}

Workload ring_all_reduce(Hosts hosts, Bytes bytes) {
  return ring("ring all-reduce", hosts, bytes, static_cast<uint32_t>(2 * (hosts.size() - 1)));
}

Workload hierarchical_all_reduce(Hosts hosts, uint32_t per_server, Bytes bytes) {
  FlowGraph graph("hierarchical all-reduce");
  const auto servers = static_cast<uint32_t>(hosts.size() / per_server);
  std::vector<After> after(hosts.size());  // by place in `hosts`
  const auto within_servers = [&](uint32_t first_share) {
    for (uint32_t server = 0; server < servers; ++server) {
      const auto begin = after.begin() + server * per_server;
      const auto done = ring_steps(graph, hosts.subspan(server * per_server, per_server), bytes,
                                   first_share, per_server - 1, {begin, begin + per_server});
      std::copy(done.begin(), done.end(), begin);
    }
  };

  within_servers(0);
  for (uint32_t place = 0; place < per_server; ++place) {
    std::vector<uint32_t> members;
    std::vector<After> ready;
    for (uint32_t server = 0; server < servers; ++server) {
      members.push_back(hosts[server * per_server + place]);
      ready.push_back(after[server * per_server + place]);
    }
    const Bytes part = share(bytes, per_server, (place + 1) % per_server);
    const auto done = ring_steps(graph, members, part, 0, 2 * (servers - 1), std::move(ready));
    for (uint32_t server = 0; server < servers; ++server) {
      after[server * per_server + place] = done[server];
    }
  }
  within_servers(1);
  return graph.take();
}

Workload tree_all_reduce(Hosts hosts, Bytes bytes, uint32_t pieces) {
  FlowGraph graph("tree all-reduce");
  PieceTree tree(graph, hosts, bytes, pieces);
  tree.broadcast(tree.reduce());
  return graph.take();
}

Workload tree_broadcast(Hosts hosts, Bytes bytes, uint32_t pieces) {
  FlowGraph graph("tree broadcast");
  PieceTree(graph, hosts, bytes, pieces).broadcast({});
  return graph.take();
}

Workload ring_broadcast(Hosts hosts, Bytes bytes, uint32_t pieces) {
  FlowGraph graph("ring broadcast");
  PieceTree way(graph, hosts, bytes, pieces);
  std::vector<PieceTree::Flows> inputs;
  for (uint32_t i = 0; i + 1 < hosts.size(); ++i) inputs = {way.send(i, i + 1, inputs)};
  return graph.take();
}

Workload pipeline_parallel(Hosts hosts, Bytes bytes, uint32_t microbatches, Duration compute) {
  FlowGraph graph("pipeline");
  const auto stages = static_cast<uint32_t>(hosts.size());
  // [stage][microbatch]: the activations from this stage to the next, the gradients to the one
  // before.
  std::vector<std::vector<uint32_t>> activations(stages);
  std::vector<std::vector<uint32_t>> gradients(stages);
  for (uint32_t stage = 0; stage < stages; ++stage) {
    for (uint32_t batch = 0; batch < microbatches; ++batch) {
      if (stage + 1 < stages) {
        activations[stage].push_back(graph.add(hosts[stage], hosts[stage + 1], bytes));
      }
      if (stage > 0) {
        gradients[stage].push_back(graph.add(hosts[stage], hosts[stage - 1], bytes));
      }
    }
  }
  for (uint32_t stage = 0; stage < stages; ++stage) {
    After after;    // what the stage's next send waits for
    Duration work;  // what it computes from then on
    const auto send = [&](uint32_t flow) {
      graph.flow(flow).start = work;
      graph.start_after(flow, after);
      after = {.sent = {flow}};
      work = {};
    };
    const auto forward = [&](uint32_t batch) {
      work = work + compute;
      if (stage > 0) after.received.push_back(activations[stage - 1][batch]);
      if (stage + 1 < stages) send(activations[stage][batch]);
    };
    const auto backward = [&](uint32_t batch) {
      work = work + compute;
      if (stage + 1 < stages) after.received.push_back(gradients[stage + 1][batch]);
      if (stage > 0) send(gradients[stage][batch]);
    };
    const uint32_t ahead = std::min(microbatches, stages - 1 - stage);
    for (uint32_t batch = 0; batch < ahead; ++batch) forward(batch);
    for (uint32_t batch = 0; batch < microbatches; ++batch) {
      if (batch + ahead < microbatches) forward(batch + ahead);
      backward(batch);
    }
  }
  return graph.take();
}

}  // namespace pacecar
