#include "bench/sim/run.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <numeric>
#include <optional>

#include "bench/sim/ideal.h"
#include "bench/sim/link_names.h"
#include "bench/sim/metrics.h"
#include "bench/sim/monitor.h"
#include "bench/sim/sim_host.h"
#include "bench/sim/spec_file.h"
#include "bench/sim/traffic.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/routing.h"
#include "transport/sim/topology.h"
#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

// Set-up is over when nothing has moved for this long.
constexpr Duration kQuiet = Duration::from_us(250);
constexpr Duration kLongestSetUp = Duration::from_s(1);
constexpr int64_t kSetUpCables = 100;  // besides: as long as one after the other takes, five ways
constexpr uint64_t kEventsPerReport = 1 << 16;
constexpr uint32_t kWindowBits = 64;  // packets per word of an acknowledgement's bitmap

// Two structs of counters, which are 64-bit numbers only, added or subtracted number by number.
template <typename Counters, typename Operation>
Counters combined(const Counters& a, const Counters& b, Operation operation) {
  using Numbers = std::array<uint64_t, sizeof(Counters) / sizeof(uint64_t)>;
  auto numbers = std::bit_cast<Numbers>(a);
  std::ranges::transform(numbers, std::bit_cast<Numbers>(b), numbers.begin(), operation);
  return std::bit_cast<Counters>(numbers);
}

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

Result<void> check_flows(const RunSpec& spec) {
  const Workload& workload = spec.workload;
  const auto bad = [&](const WorkloadFlow& flow) {
    const Topology& topology = spec.topology;
    return flow.source >= topology.all_processes() ||
           flow.destination >= topology.all_processes() ||
           topology.host_of(flow.source) == topology.host_of(flow.destination) ||
           flow.job >= workload.jobs.size();
  };
  const auto found = std::ranges::find_if(workload.flows, bad);
  if (found != workload.flows.end()) {
    return invalid(
        "flow {} goes from host {} to host {}, but the topology has hosts 0 to {}, and no host "
        "sends to itself: change the workload or the topology",
        found->id, spec.topology.host_of(found->source), spec.topology.host_of(found->destination),
        spec.topology.hosts - 1);
  }
  if (workload.flows.empty()) {
    return invalid("the workload has no flows: nothing would be measured");
  }
  return {};
}

// In packets; large enough for the fastest host.
uint32_t window_of(const RunSpec& spec) {
  const Rate line_rate = std::ranges::max(host_limits(spec.topology).out);
  constexpr uint32_t kMost = wire::kMaxBitmapWords * kWindowBits;
  const Bytes wanted = spec.transport.window_packets != 0
                           ? spec.transport.window_packets
                           : 2 * line_rate.bytes_in(spec.transport.base_rtt) / spec.transport.mtu;
  return std::bit_ceil(static_cast<uint32_t>(std::clamp<Bytes>(wanted, kWindowBits, kMost)));
}

// The fabric's configuration with room for the longest headers and datagrams under `window`.
FabricConfig fabric_config(const RunSpec& spec, uint32_t window) {
  FabricConfig config = spec.fabric;
  const size_t ack =
      wire::ack_bytes(window / kWindowBits, kMaxTelemetryHops) + wire::kChecksumBytes;
  const size_t telemetry =
      wire::kDataHeaderBytes + Traffic::kReceivesAhead * sizeof(CtsSlot) + wire::kChecksumBytes;
  config.header_bytes = std::max(ack, telemetry);
  config.hosts.datagram_bytes = std::max(
      config.header_bytes, wire::kDataHeaderBytes + spec.transport.mtu + wire::kChecksumBytes);
  config.payload = PayloadMode::kLength;
  return config;
}

// A run: fabric, hosts, traffic, faults, and what observes them. As an event sink it injects the
// faults, which are in the order of their times.
class Experiment final : private EventSink {
 public:
  explicit Experiment(const RunSpec& spec) : spec_(spec) {}

  Result<void> set_up(const ProgressCallback& progress) {
    const double started = thread_cpu_seconds();
    RETURN_IF_ERROR(check_flows(spec_));
    if (!spec_.trace.empty()) {
      ASSIGN_OR_RETURN(trace_, TraceFile::create(spec_.trace));
    }
    window_ = window_of(spec_);
    ASSIGN_OR_RETURN(
        fabric_, Fabric::create(loop_, spec_.topology, fabric_config(spec_, window_), spec_.seed));
    traffic_.emplace(loop_, spec_.workload, spec_.topology.all_processes(),
                     spec_.transport.receives_posted, trace_.get());
    RETURN_IF_ERROR(make_hosts(progress));
    RETURN_IF_ERROR(traffic_->set_up(hosts_));
    monitor_.emplace(loop_, *fabric_, spec_, *traffic_, sampled_flows());
    fault_timer_ = loop_.add_timer(*this, 0);
    const auto quiet = run_until_quiet(progress);
    set_up_cpu_seconds_ = thread_cpu_seconds() - started;
    return quiet;
  }

  Result<RunResult> run(const ProgressCallback& progress) {
    if (!spec_.pcap.empty()) {
      ASSIGN_OR_RETURN(const auto link, find_link(spec_.topology, spec_.pcap_link));
      RETURN_IF_ERROR(fabric_->capture(link, spec_.pcap));
    }
    begin_ = loop_.now();
    nics_before_ = nic_counters();
    events_before_ = loop_.events();
    fabric_->reset_counters();
    traffic_->begin();
    begin_faults();
    monitor_->begin();
    const double started = thread_cpu_seconds();
    play(progress);
    loop_cpu_seconds_ = thread_cpu_seconds() - started;
    if (trace_ != nullptr) {
      RETURN_IF_ERROR(trace_->close());
    }
    RETURN_IF_ERROR(fabric_->close_captures());
    return result();
  }

 private:
  Result<void> make_hosts(const ProgressCallback& progress) {
    ASSIGN_OR_RETURN(const auto algorithms, algorithms_of(spec_));
    const Topology& topology = spec_.topology;
    if (topology.processes > 1 && spec_.transport.share == LinkSharing::kAuto) {
      for (uint32_t i = 0; i < topology.hosts; ++i) nics_.push_back(std::make_unique<SharedNic>());
    }
    Prng seeds(spec_.seed);
    const auto listener = [this](uint32_t host, Instant now, bool messages) {
      traffic_->on_step(host, now, messages);
    };
    for (uint32_t host = 0; host < topology.all_processes(); ++host) {
      const double made = static_cast<double>(host) / topology.all_processes();
      if (progress && !progress({.building = true, .done = made, .virtual_time = {}})) {
        return interrupted();
      }
      const Traffic::Peers peers = traffic_->peers(host);
      if (std::max(peers.to, peers.from) > Immediate::kMaxConnections) {
        return invalid("host {} has {} peers, more than {}: use fewer senders per receiver", host,
                       std::max(peers.to, peers.from), Immediate::kMaxConnections);
      }
      ASSIGN_OR_RETURN(
          auto simulated,
          SimHost::create(loop_, *fabric_, spec_,
                          {.number = host,
                           .congestion_control = algorithms.controls[host],
                           .allocator = algorithms.allocators[host],
                           .weight = algorithms.weights[host],
                           .shared = nics_.empty() ? nullptr : nics_[topology.host_of(host)].get(),
                           .received = received_,
                           .flows = peers.to + peers.from,
                           .connections = std::max(peers.to, peers.from),
                           .window_packets = window_,
                           .seed = seeds.next_u64(),
                           .report_steps = trace_ != nullptr},
                          listener));
      hosts_.push_back(std::move(simulated));
    }
    return {};
  }

  static Result<void> interrupted() {
    return fail(ErrorCode::kUnavailable, "interrupted before the run began");
  }

  // Runs until all posted buffers are advertised and nothing is in flight.
  Result<void> run_until_quiet(const ProgressCallback& progress) {
    const Duration delay = std::ranges::max(spec_.topology.cables, {}, &Cable::delay).delay;
    const Duration longest = kLongestSetUp + delay * kSetUpCables;
    uint64_t sent = ~uint64_t{0};
    while (sent != fabric_->counters().sent || fabric_->counters().in_flight > 0) {
      sent = fabric_->counters().sent;
      const Instant until = loop_.now() + kQuiet;
      while (loop_.next_time() <= until) {
        loop_.run_one();
        if (!progress || loop_.events() % kEventsPerReport != 0) continue;
        if (!progress({.building = true, .done = 1, .virtual_time = {}})) return interrupted();
      }
      loop_.run_until(until);
      if (loop_.now() - Instant() > longest) {
        return invalid(
            "the hosts could not advertise their buffers within {} s: the fabric loses too much, "
            "or its control queues are too small",
            longest.seconds());
      }
    }
    return {};
  }

  // The flows to sample: the largest ones, in their order.
  std::vector<uint32_t> sampled_flows() const {
    const auto& flows = spec_.workload.flows;
    std::vector<uint32_t> largest(flows.size());
    std::iota(largest.begin(), largest.end(), 0U);
    std::ranges::stable_sort(largest, std::greater<>(),
                             [&](uint32_t flow) { return flows[flow].bytes; });
    largest.resize(std::min(largest.size(), spec_.sampling.series));
    std::ranges::sort(largest);
    return largest;
  }

  void begin_faults() {
    // The fabric takes the times of all frozen hosts in advance.
    for (const FaultEvent& fault : spec_.faults) {
      if (fault.kind != FaultKind::kHostFrozen) continue;
      const Instant from = begin_ + fault.at;
      faulty_.stalls.push_back({{from, from + fault.length}, fault.target});
    }
    if (!faulty_.stalls.empty()) fabric_->set_faults(faulty_);
    if (!spec_.faults.empty()) loop_.arm(fault_timer_, begin_ + spec_.faults.front().at);
  }

  void on_event(Instant now, uint32_t) override {
    const auto& faults = spec_.faults;
    for (; next_fault_ < faults.size() && begin_ + faults[next_fault_].at <= now; ++next_fault_) {
      inject(faults[next_fault_]);
      if (trace_ != nullptr) trace_->write(now - begin_, "fault", "number", next_fault_);
    }
    if (next_fault_ < faults.size()) loop_.arm(fault_timer_, begin_ + faults[next_fault_].at);
  }

  void inject(const FaultEvent& fault) {
    switch (fault.kind) {
      case FaultKind::kCableDown:
      case FaultKind::kCableUp:
        return fabric_->set_cable_up(fault.target, fault.kind == FaultKind::kCableUp);
      case FaultKind::kCableRate: return fabric_->set_cable_rate(fault.target, fault.rate);
      case FaultKind::kCableLoss: return fabric_->set_cable_loss(fault.target, fault.probability);
      case FaultKind::kHostFrozen: return;  // since begin_faults()
      case FaultKind::kWordLoss: {
        const auto port = fault.everywhere ? std::nullopt : std::optional<size_t>(fault.target);
        std::erase_if(faulty_.word_losses, [&](const SimWordLoss& earlier) {
          return fault.everywhere || earlier.port == port;
        });
        faulty_.word_losses.push_back({fault.probability, port});
        return fabric_->set_faults(faulty_);
      }
      case FaultKind::kPacketLoss:
        faulty_.loss = fault.probability;
        return fabric_->set_faults(faulty_);
    }
  }

  void play(const ProgressCallback& progress) {
    const Instant end = begin_ + spec_.time_limit;
    uint64_t next_report = loop_.events();
    while (!traffic_->done() && loop_.next_time() <= end) {
      loop_.run_one();
      if (!progress || loop_.events() < next_report) continue;
      next_report = loop_.events() + kEventsPerReport;
      const double done = static_cast<double>(traffic_->arrived_bytes()) /
                          static_cast<double>(std::max<Bytes>(traffic_->total_bytes(), 1));
      if (!progress({false, done, loop_.now() - begin_, loop_.events()})) return;
    }
    if (!traffic_->done()) loop_.run_until(end);
  }

  void fill_ideals(RunResult& result) const {
    const auto routing = make_routing(spec_.topology);
    PACECAR_CHECK(routing.has_value());  // the fabric has one
    PacketSizes sizes = packet_sizes(spec_, spec_.fabric.hosts.overhead_bytes);
    const HostLimits limits = host_limits(spec_.topology, spec_.fabric.policers);
    const Spread spread = spec_.transport.spreads() ? Spread::kYes : Spread::kNo;
    for (FlowResult& flow : result.flows) {
      const uint32_t source = spec_.topology.host_of(flow.source);
      const uint32_t destination = spec_.topology.host_of(flow.destination);
      auto there = path_between(spec_.topology, *routing, source, destination, spread);
      const auto back = path_between(spec_.topology, *routing, destination, source, spread);
      there.front().total = std::min(there.front().total, limits.out[source]);
      there.back().total = std::min(there.back().total, limits.in[destination]);
      if (spec_.fabric.switches.telemetry) {
        sizes.ack = packet_sizes(spec_, spec_.fabric.hosts.overhead_bytes).ack +
                    wire::kTelemetryHopBytes * std::min(there.size() - 1, kMaxTelemetryHops);
      }
      flow.ideal = completion_time(there, back, flow.bytes, sizes);
      const Bytes packets = (flow.bytes + sizes.mtu - 1) / sizes.mtu;
      const Bytes wire_bytes = flow.bytes + std::max<Bytes>(packets, 1) * sizes.overhead;
      flow.at_source = limits.out[source].time_for(wire_bytes);
      flow.at_destination = limits.in[destination].time_for(wire_bytes);
    }
  }

  NicCounters nic_counters() const {
    NicCounters sum;
    for (const auto& host : hosts_) sum = combined(sum, host->nic().counters(), std::plus<>());
    return sum;
  }
  Result<RunResult> result() {
    RunResult result;
    result.name = spec_.name;
    result.congestion_control = spec_.transport.congestion_control;
    result.hosts = spec_.hosts.name;
    result.seed = spec_.seed;
    result.processes = spec_.topology.processes;
    for (const WorkloadJob& job : spec_.workload.jobs) result.jobs.push_back(job.name);
    result.flows = traffic_->results();
    fill_ideals(result);
    result.duration = loop_.now() - begin_;
    result.complete = traffic_->done();
    result.switch_buffer_max_bytes = fabric_->switch_buffer_max();
    result.nics = combined(nic_counters(), nics_before_, std::minus<>());
    result.fabric = fabric_->counters();
    if (!result.fabric.conserved()) {
      const FabricCounters& fabric = result.fabric;
      return fail(
          ErrorCode::kInternal,
          fmt::format("packets are missing from the books: {} sent and {} duplicated, but {} "
                      "delivered, {} dropped and {} in flight: please report this run",
                      fabric.sent, fabric.duplicated, fabric.delivered, fabric.all_dropped(),
                      fabric.in_flight));
    }
    monitor_->finish(result);
    result.base_rtt = spec_.transport.base_rtt;
    fill_shares(spec_, result);
    result.events = loop_.events() - events_before_;
    result.set_up_cpu_seconds = set_up_cpu_seconds_;
    result.loop_cpu_seconds = loop_cpu_seconds_;
    result.trace_hash = fabric_->trace_hash();
    return result;
  }

  const RunSpec& spec_;
  uint32_t window_ = 0;  // packets
  std::unique_ptr<TraceFile> trace_;
  EventLoop loop_;
  std::unique_ptr<Fabric> fabric_;
  std::optional<Traffic> traffic_;
  std::vector<std::unique_ptr<SharedNic>> nics_;          // by host, if processes share
  std::array<RxPacket, SoftPort::kMaxReceive> received_;  // by the host whose turn it is
  Traffic::Hosts hosts_;
  std::optional<Monitor> monitor_;
  EventLoop::TimerId fault_timer_ = 0;
  size_t next_fault_ = 0;
  SimFaults faulty_;  // as set in the fabric
  Instant begin_;
  NicCounters nics_before_;
  uint64_t events_before_ = 0;
  double set_up_cpu_seconds_ = 0;
  double loop_cpu_seconds_ = 0;
};

}  // namespace

Result<RunResult> run_experiment(const RunSpec& spec, const ProgressCallback& progress) {
  const auto started = std::chrono::steady_clock::now();
  Experiment experiment(spec);
  RETURN_IF_ERROR(experiment.set_up(progress));
  auto result = experiment.run(progress);
  if (result) {
    result->wall_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  }
  return result;
}

}  // namespace pacecar
