#include "bench/workload/generators.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "bench/workload/cm_file.h"
#include "bench/workload/flow_sizes.h"
#include "transport/base/prng.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// Part `i` of `bytes` cut into `parts` as evenly as whole bytes go.
Bytes share(Bytes bytes, uint64_t parts, uint64_t i) {
  return bytes / parts + (i < bytes % parts ? 1 : 0);
}

// Steps of a ring: in step s host i sends share i + first_share - s to the next host. `after`: the
// flows for which each host waits before its first step. Returns the flows to await after its last.
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
      after[i] = {.received = {flows[(i + n - 1) % n]}, .sent = {flows[i]}};
    }
  }
  return after;
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

  // Down to all; `root_inputs` as in send().
  void broadcast(const std::vector<Flows>& root_inputs) {
    std::vector<std::vector<Flows>> inputs(hosts_.size());
    inputs[0] = root_inputs;
    for (uint32_t host = 1; host < hosts_.size(); ++host) {
      const uint32_t parent = (host - 1) / 2;
      inputs[host] = {send(parent, host, inputs[parent])};
    }
  }

  // Sends up from all hosts; returns the flows that arrive at the root.
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

// A run of more flows takes too much memory and time.
constexpr uint64_t kMaxFlows = 10'000'000;

// Refuses too many flows, and messages too small for `parts` parts.
Result<void> check_parts(const WorkloadSpec& spec, uint64_t flows, uint64_t parts) {
  if (spec.bytes < parts) {
    return unfit(spec, "{} bytes cannot be cut into {} parts; raise bytes", spec.bytes, parts);
  }
  if (flows > kMaxFlows) {
    return unfit(spec, "it would have {} flows; stay below {} with fewer hosts or pieces", flows,
                 kMaxFlows);
  }
  return {};
}

Result<Workload> ring(const WorkloadSpec& spec, Hosts hosts, uint32_t rounds) {
  const uint64_t n = hosts.size();
  RETURN_IF_ERROR(check_parts(spec, rounds * n * (n - 1), n));
  FlowGraph graph;
  ring_steps(graph, hosts, spec.bytes, 0, static_cast<uint32_t>(rounds * (n - 1)),
             std::vector<After>(n));
  return graph.take();
}

// What `send` sends in pieces.
template <typename Send>
Result<Workload> in_pieces(const WorkloadSpec& spec, Hosts hosts, const Send& send) {
  RETURN_IF_ERROR(check_parts(spec, 2 * hosts.size() * spec.pieces, spec.pieces));
  FlowGraph graph;
  PieceTree tree(graph, hosts, spec.bytes, spec.pieces);
  send(tree);
  return graph.take();
}

}  // namespace

Result<Workload> file_flows(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  ASSIGN_OR_RETURN(auto workload, read_cm_file(spec.file));
  if (workload.hosts > hosts.size()) {
    return unfit(spec, "{} has flows between {} hosts, but {} take part; let as many take part",
                 spec.file, workload.hosts, hosts.size());
  }
  for (WorkloadFlow& flow : workload.flows) {
    flow.source = hosts[flow.source];
    flow.destination = hosts[flow.destination];
  }
  return workload;
}

Result<Workload> pairs(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  if (hosts.size() % 2 != 0) {
    return unfit(spec, "hosts has {} entries; give an even number: source, destination, ...",
                 hosts.size());
  }
  FlowGraph graph;
  for (size_t i = 0; i < hosts.size(); i += 2) graph.add(hosts[i], hosts[i + 1], spec.bytes);
  return graph.take();
}

Result<Workload> incast(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  const size_t left = hosts.size() - std::min<size_t>(hosts.size(), spec.receivers);
  const size_t most = left / spec.receivers;
  if (spec.senders > most || most == 0) {
    return unfit(spec,
                 "{} hosts are enough for {} senders per receiver; lower senders ({}) or "
                 "receivers ({}), or let more hosts take part",
                 hosts.size(), most, spec.senders, spec.receivers);
  }
  const auto senders = spec.senders == 0 ? static_cast<uint32_t>(most) : spec.senders;
  FlowGraph graph;
  for (uint32_t i = 0; i < spec.receivers; ++i) {
    for (uint32_t j = 0; j < senders; ++j) {
      graph.add(hosts[spec.receivers + i * senders + j], hosts[i], spec.bytes, spec.stagger * j);
    }
  }
  return graph.take();
}

Result<Workload> random_flows(const WorkloadSpec& spec, Hosts hosts, uint64_t seed) {
  if (spec.rate == Rate()) return unfit(spec, "rate is 0; give that of a host's link");
  const auto sizes = FlowSizes::make(spec.sizes);
  if (!sizes) return unfit(spec, "{}", sizes.error().message);
  // Flows per nanosecond of all hosts together.
  const auto n = static_cast<double>(hosts.size());
  const double arrivals = n * spec.load * spec.rate.real_bps() / 8e9 / sizes->mean();
  const double end = spec.length.real_ns();
  if (arrivals * end > static_cast<double>(kMaxFlows)) {
    return unfit(spec,
                 "about {:.3g} flows would start; shorten the length or lower the load to stay "
                 "below {}",
                 arrivals * end, kMaxFlows);
  }
  FlowGraph graph;
  Prng prng(seed);
  for (double now = 0;;) {
    now -= std::log1p(-prng.fraction()) / arrivals;
    if (now >= end) break;
    const uint64_t from = prng.below(hosts.size());
    const uint64_t to = (from + 1 + prng.below(hosts.size() - 1)) % hosts.size();
    graph.add(hosts[from], hosts[to], sizes->at(prng.fraction()),
              Duration::from_ns(static_cast<int64_t>(now)));
  }
  return graph.take();
}

Result<Workload> permutation(const WorkloadSpec& spec, Hosts hosts, uint64_t seed) {
  const size_t n = hosts.size();
  const uint32_t hosts_per_leaf = spec.hosts_per_leaf;
  // Leaf by leaf, so that a host's partner at the distance of the largest leaf's size is on another
  // leaf.
  std::map<uint32_t, std::vector<uint32_t>> leaves;
  for (const uint32_t host : hosts) leaves[host / hosts_per_leaf].push_back(host);
  std::vector<uint32_t> from;
  size_t widest = 0;
  for (const auto& [leaf, members] : leaves) {
    from.insert(from.end(), members.begin(), members.end());
    widest = std::max(widest, members.size());
  }
  if (2 * widest > n) {
    return unfit(
        spec,
        "a permutation that leaves the leaf needs another host for each of the {} hosts of "
        "one leaf, but only {} are on others; set hosts_per_leaf to 1 or let more hosts "
        "take part",
        widest, n - widest);
  }
  std::vector<uint32_t> to(n);
  for (size_t i = 0; i < n; ++i) to[i] = from[(i + widest) % n];

  // Random exchanges that send no host to its own leaf.
  const auto may = [&](uint32_t a, uint32_t b) { return a / hosts_per_leaf != b / hosts_per_leaf; };
  Prng prng(seed);
  constexpr size_t kExchangesPerHost = 32;
  for (size_t i = 0; i < n * kExchangesPerHost; ++i) {
    const size_t a = prng.below(n);
    const size_t b = prng.below(n);
    if (may(from[a], to[b]) && may(from[b], to[a])) std::swap(to[a], to[b]);
  }

  FlowGraph graph;
  for (size_t i = 0; i < n; ++i) graph.add(from[i], to[i], spec.bytes);
  return graph.take();
}

Result<Workload> all_to_all(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  const auto n = static_cast<uint32_t>(hosts.size());
  const uint32_t others = n - 1;
  RETURN_IF_ERROR(check_parts(spec, uint64_t{n} * others, 1));
  const uint32_t at_once = spec.parallel == 0 ? others : std::min(spec.parallel, others);
  const uint32_t stride = others / at_once;
  // The distance of each next destination around the circle of hosts: first `at_once` distances
  // spread evenly, then their neighbours, at last the remaining distances.
  std::vector<uint32_t> steps;
  for (uint32_t i = 0; i < stride; ++i) {
    for (uint32_t j = 0; j < at_once; ++j) steps.push_back(1 + i + j * stride);
  }
  for (uint32_t step = at_once * stride + 1; step < n; ++step) steps.push_back(step);

  FlowGraph graph;
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t waits = kNoTrigger;
    uint32_t fires = kNoTrigger;
    for (uint32_t k = 0; k < others; ++k) {
      if (k % at_once == 0) {  // the flows of a round start the next round
        waits = fires;
        fires = k + at_once < others
                    ? graph.add_trigger({.kind = WorkloadTrigger::Kind::kMultiShot})
                    : kNoTrigger;
      }
      WorkloadFlow& flow = graph.flow(graph.add(hosts[i], hosts[(i + steps[k]) % n], spec.bytes));
      flow.trigger = waits;
      if (fires != kNoTrigger) flow.on_sent = {fires};
    }
  }
  return graph.take();
}

Result<Workload> ring_half(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  return ring(spec, hosts, 1);
}

Result<Workload> ring_all_reduce(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  return ring(spec, hosts, 2);
}

Result<Workload> hierarchical_all_reduce(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  const uint64_t n = hosts.size();
  const uint32_t per_server = spec.hosts_per_server;
  const Bytes bytes = spec.bytes;
  if (per_server < 2 || n % per_server != 0 || n == per_server) {
    return unfit(spec,
                 "{} hosts do not make up several servers of {}; give a hosts_per_server of "
                 "at least 2 that divides the number of hosts",
                 n, per_server);
  }
  RETURN_IF_ERROR(check_parts(spec, 2 * n * (per_server - 1 + n / per_server - 1), n));
  FlowGraph graph;
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

Result<Workload> tree_all_reduce(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  return in_pieces(spec, hosts, [](PieceTree& tree) { tree.broadcast(tree.reduce()); });
}

Result<Workload> tree_broadcast(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  return in_pieces(spec, hosts, [](PieceTree& tree) { tree.broadcast({}); });
}

Result<Workload> ring_broadcast(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  return in_pieces(spec, hosts, [&](PieceTree& tree) {
    std::vector<PieceTree::Flows> inputs;
    for (uint32_t i = 0; i + 1 < hosts.size(); ++i) inputs = {tree.send(i, i + 1, inputs)};
  });
}

Result<Workload> pipeline_parallel(const WorkloadSpec& spec, Hosts hosts, uint64_t) {
  const uint32_t microbatches = spec.microbatches;
  RETURN_IF_ERROR(check_parts(spec, 2 * hosts.size() * microbatches, 1));
  FlowGraph graph;
  const auto stages = static_cast<uint32_t>(hosts.size());
  // [stage][microbatch]: the activations for the next stage, the gradients for the one before.
  std::vector<std::vector<uint32_t>> activations(stages);
  std::vector<std::vector<uint32_t>> gradients(stages);
  for (uint32_t stage = 0; stage < stages; ++stage) {
    for (uint32_t batch = 0; batch < microbatches; ++batch) {
      if (stage + 1 < stages) {
        activations[stage].push_back(graph.add(hosts[stage], hosts[stage + 1], spec.bytes));
      }
      if (stage > 0) {
        gradients[stage].push_back(graph.add(hosts[stage], hosts[stage - 1], spec.bytes));
      }
    }
  }
  for (uint32_t stage = 0; stage < stages; ++stage) {
    After after;    // flows for which the stage's next send waits
    Duration work;  // the stage's computation after these flows
    const auto send = [&](uint32_t flow) {
      graph.flow(flow).start = work;
      graph.start_after(flow, after);
      after = {.sent = {flow}};
      work = {};
    };
    const auto forward = [&](uint32_t batch) {
      work = work + spec.compute;
      if (stage > 0) after.received.push_back(activations[stage - 1][batch]);
      if (stage + 1 < stages) send(activations[stage][batch]);
    };
    const auto backward = [&](uint32_t batch) {
      work = work + spec.compute;
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
