#include "transport/api/engine_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "transport/api/lane_list.h"
#include "transport/api/memory.h"
#include "transport/engine/open/own_link.h"

namespace pacecar {
namespace {

// The most bonds of a process. Memory is reserved for them: spans that nics() returned stay valid.
constexpr size_t kMaxBonds = 64;

// Whether `other` takes GPU memory in every way in which `requested` does. Applications rely on it.
bool takes_gpu_memory_as(const NicInfo& requested, const NicInfo& other) {
  constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
  const auto limit = [](uint64_t bytes) { return bytes == 0 ? kNoLimit : bytes; };
  if (!requested.cuda) return true;
  return other.cuda && (other.dma_buf || !requested.dma_buf) &&
         (requested.gpu_flush || !other.gpu_flush) &&
         limit(other.gpu_message_bytes) >= limit(requested.gpu_message_bytes);
}

}  // namespace

EngineContext::EngineContext(Params params, std::vector<Group> groups, LogSink log,
                             bootstrap::ClusterKey key, std::vector<Page> pages)
    : params_(std::move(params)),
      log_(log),
      pages_(std::move(pages)),
      key_(std::move(key)),
      groups_(std::move(groups)),
      own_(groups_.size()) {
  groups_.reserve(own_ + kMaxBonds);
  infos_.reserve(own_ + kMaxBonds);
  for (Group& group : groups_) {
    for (RunningNic& nic : group) nic.subnet = subnet_of(nic.engine->address());
    infos_.push_back(describe(group));
  }
  known_ = own_;
  serve_state();
}

Result<std::unique_ptr<Listener>> EngineContext::listen(size_t nic) {
  if (nic >= known_) return no_such_nic(nic);
  return make_listener(own(nic), params_, key_);
}

Result<std::unique_ptr<Connecting>> EngineContext::connect(size_t nic, const Handle& handle,
                                                           const ConnectOptions& options) {
  if (nic >= known_) return no_such_nic(nic);
  if (options.weight > kMaxWeight) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a connection's weight is {}: give 1 to {}, or 0 for PACECAR_WEIGHT",
                            options.weight, kMaxWeight));
  }
  return make_connecting(own(nic), params_, key_, handle, options);
}

void EngineContext::expect(uint32_t senders) {
  for (const Group& group : std::span(groups_.data(), own_)) {
    for (const RunningNic& nic : group) nic.engine->expect({.peers = senders});
  }
}

Result<std::optional<FlushId>> EngineContext::start_flush(size_t nic, const Memory* memory,
                                                          const void* data) {
  if (nic >= known_) return no_such_nic(nic);
  return flushes_.start(groups_[nic], *memory, static_cast<const uint8_t*>(data));
}

// The engines of a bond take turns, so that none waits long for a poll.
Engine& EngineContext::next_engine(size_t nic) {
  const Group& group = groups_[nic];
  return *group[turn_++ % group.size()].engine;
}

void EngineContext::progress(size_t nic) {
  if (nic < known_) next_engine(nic).progress();
}

void EngineContext::rest(size_t nic) {
  if (nic < known_) next_engine(nic).rest();
}

tl::unexpected<Error> EngineContext::no_such_nic(size_t nic) const {
  return fail(ErrorCode::kNotFound,
              fmt::format("there is no NIC number {}: the last one is {}", nic, known_ - 1));
}

OwnDevice EngineContext::device(size_t nic) const {
  OwnDevice device{.number = nic, .name = infos_[nic].name, .nics = {}};
  for (const RunningNic& running : groups_[nic]) {
    device.nics.push_back({.engine = running.engine,
                           .name = running.info.name,
                           .timeout = params_.timeout,
                           .log = log_,
                           .member = device.nics.size(),
                           .subnet = running.subnet,
                           .speed_mbps = running.info.speed_mbps});
  }
  return device;
}

OwnDevices EngineContext::own(size_t nic) const {
  OwnDevices own{.devices = {device(nic)}, .keeper = keeper_, .notices = notices_};
  for (size_t other = 0; other < own_; ++other) {
    if (other == nic) continue;
    own.devices.push_back(device(other));
    own.devices.back().suits = takes_gpu_memory_as(infos_[nic], infos_[other]);
  }
  return own;
}

// For `pacecar doctor`, `top` and `metrics`.
void EngineContext::serve_state() {
  if (params_.state_dir == kNoStateDirectory) return;
  auto directory = params_.state_dir.empty() ? StateDirectory::make_usual()
                                             : StateDirectory::make(params_.state_dir);
  auto server = std::move(directory).and_then(
      [this](StateDirectory&& made) { return StateServer::open(std::move(made), state_pages()); });
  if (server) {
    state_server_ = std::move(*server);
  } else {
    log_(LogLevel::kWarn,
         "pacecar doctor, top and metrics will not see this process: " + server.error().message);
  }
}

StatePages EngineContext::state_pages() const {
  const auto json = [this](StateDetail detail) { return state_document(state(), detail); };
  StatePages pages = {{kWholeState, kJsonType, [json] { return json(StateDetail::kWhole); }},
                      {kStateSummary, kJsonType, [json] { return json(StateDetail::kSummary); }}};
  for (const Page& page : pages_) pages.push_back({page.path, page.type, page.make});
  return pages;
}

ProcessState EngineContext::state() const {
  ProcessState state{.name = process_,
                     .uptime = clock_now() - opened_,
                     .processor = processor_time(),
                     .banner = banner(),
                     .nics = {}};
  for (const Group& group : std::span(groups_.data(), own_)) {
    for (const RunningNic& nic : group) state.nics.push_back(state_of(nic));
  }
  return state;
}

NicState EngineContext::state_of(const RunningNic& nic) const {
  NicState state{.info = nic.info,
                 .identity = nic.engine->identity(),
                 .line_rate = nic.engine->caps().line_rate,
                 .statistics = {},
                 .flows = {},
                 .sharers = {},
                 .link_up = link_is_up(nic.info.device)};
  add_statistics(nic, state.statistics);
  if (auto sharers = link_sharers(link_name(nic.info.device, nic.info.guid), clock_now())) {
    state.sharers = std::move(*sharers);
  }
  state.flows = nic.engine->exclusively(
      [](const Messenger& messenger, Nic&, Instant now) { return messenger.flow_statuses(now); });
  return state;
}

// A bond is named like NCCL's fused devices: "mlx5_0+mlx5_1". The first NIC gives path and GUID.
NicInfo EngineContext::describe(const Group& group) {
  NicInfo all = group.front().info;
  all.ports = static_cast<uint32_t>(group.size());
  for (const RunningNic& running : std::span(group).subspan(1)) {
    const NicInfo& nic = running.info;
    all.name += "+" + nic.name;
    all.device += "+" + nic.device;
    all.speed_mbps += nic.speed_mbps;
    all.mtu_bytes = std::min(all.mtu_bytes, nic.mtu_bytes);
    all.paths += nic.paths;
    all.engines += nic.engines;
    all.max_connections = std::min(all.max_connections, nic.max_connections);
    all.ecn = all.ecn && nic.ecn;
    if (all.rail != nic.rail) all.rail.reset();
    all.cuda = all.cuda && nic.cuda;
    all.dma_buf = all.dma_buf && nic.dma_buf;
    all.gpu_flush = all.gpu_flush || nic.gpu_flush;
    all.gpu_message_bytes = std::max(all.gpu_message_bytes, nic.gpu_message_bytes);
    if (nic.gpu_memory != all.gpu_memory) all.gpu_memory += "; " + nic.gpu_memory;
    if (nic.offloads != all.offloads) all.offloads += "; " + nic.offloads;
  }
  return all;
}

std::string EngineContext::banner() const {
  std::string text = "Pacecar on";
  for (const NicInfo& info : nics()) {
    text +=
        fmt::format(" {} ({}, {} B packets, {} paths{})", info.name, info.address, info.mtu_bytes,
                    info.paths, info.engines > 1 ? fmt::format(", {} engines", info.engines) : "");
  }
  text += fmt::format("; congestion control {}", params_.cc);
  for (size_t row = 0; row < param_table().size(); ++row) {
    if (params_.origin(row) == "default") continue;
    text += fmt::format("; {}={} ({})", param_table()[row].name, params_.text(row),
                        params_.origin(row));
  }
  return text;
}

Result<size_t> EngineContext::bond(std::span<const size_t> nics) {
  std::vector<size_t> members(nics.begin(), nics.end());
  Group group;
  for (const size_t nic : members) {
    if (nic >= own_ || std::ranges::count(members, nic) > 1) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("NIC number {} cannot be bonded: it is a bond, does not exist, or "
                              "is listed twice; use numbers below {}, each once",
                              nic, own_));
    }
    group.insert(group.end(), groups_[nic].begin(), groups_[nic].end());
  }
  if (group.empty() || group.size() > kMaxLanes) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a bond of {} NICs: bond 1 to {}", group.size(), kMaxLanes));
  }
  if (members.size() == 1) return members.front();
  const std::lock_guard lock(bonding_);
  for (size_t i = own_; i < known_; ++i) {
    if (infos_[i].members == members) return i;
  }
  if (known_ == infos_.capacity()) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("there are {} bonds already: use those", kMaxBonds));
  }
  infos_.push_back(describe(group));
  infos_.back().members = std::move(members);
  groups_.push_back(std::move(group));
  return known_++;
}

Result<const Memory*> EngineContext::register_memory(size_t nic, const MemoryRange& range) {
  if (nic >= known_) return no_such_nic(nic);
  const NicInfo& info = infos_[nic];
  if (range.kind == MemoryKind::kCuda && !info.cuda) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} takes only host memory ({}): with PACECAR_GPU=staged the GPU's is "
                            "copied",
                            info.name, info.gpu_memory));
  }
  // A NIC flushes GPU memory by reading from it.
  const Access access = range.kind == MemoryKind::kCuda ? Access::kRemoteAll : Access::kRemoteWrite;
  const Group& group = groups_[nic];
  std::vector<MemoryRegion> regions;
  for (const RunningNic& running : group) {
    auto region = running.engine->registering([&](NicMemory& device) {
      if (range.dmabuf_fd < 0) return device.register_memory(range.address, range.length, access);
      return device.register_dmabuf({.fd = range.dmabuf_fd,
                                     .offset = range.dmabuf_offset,
                                     .address = reinterpret_cast<uint64_t>(range.address),
                                     .length = range.length,
                                     .allocation = range.allocation},
                                    access);
    });
    if (!region) {
      release(group, regions);
      return tl::unexpected(region.error());
    }
    regions.push_back(*region);
  }
  const auto gpu = range.kind == MemoryKind::kCuda ? std::optional(range.gpu) : std::nullopt;
  return new Memory(std::move(regions), nic, gpu);  // until deregister_memory
}

Result<void> EngineContext::deregister_memory(size_t nic, const Memory* memory) {
  if (nic >= known_) return no_such_nic(nic);
  if (groups_[nic].size() > 1) keeper_->forget_memory(*memory);
  release(groups_[nic], memory->regions());
  delete memory;
  return {};
}

// `regions` may be fewer than the group's NICs.
void EngineContext::release(const Group& group, std::span<const MemoryRegion> regions) {
  for (size_t i = 0; i < regions.size() && !group[i].engine->inherited(); ++i) {
    // The returned value is destroyed outside the engine's lock.
    group[i].engine->exclusively([&](Messenger& messenger, Nic& device, Instant) {
      if (!device.shared(regions[i])) messenger.forget_memory(regions[i].key);
      return device.deregister_memory(regions[i]);
    });
  }
}

// The sum over the NICs of a bond.
Statistics EngineContext::statistics(size_t nic) const {
  Statistics sum;
  if (nic >= known_) return sum;
  for (const RunningNic& running : groups_[nic]) add_statistics(running, sum);
  return sum;
}

void EngineContext::add_statistics(const RunningNic& nic, Statistics& sum) const {
  const Nic* hardware = nullptr;
  nic.engine->exclusively([&](Messenger& messenger, Nic& device, Instant) {
    hardware = &device;
    const MessengerCounters& messages = messenger.counters();
    const NicCounters& packets = device.counters();
    const FlowReport report = messenger.report();
    sum.messages_sent += messages.messages_sent;
    sum.messages_received += messages.messages_received;
    sum.bytes_sent += messages.bytes_sent;
    sum.bytes_received += messages.bytes_received;
    sum.packets_sent += packets.data_packets_sent;
    sum.packets_received += packets.data_packets_received;
    sum.packets_retransmitted += packets.packets_retransmitted;
    sum.packets_refused += packets.packets_refused;
    sum.timeouts += packets.timeouts;
    sum.duplicates += packets.duplicates;
    sum.rejected += packets.malformed + packets.bad_checksum + packets.forged + packets.replayed +
                    packets.unknown_queue_pair + packets.wrong_source + packets.out_of_window +
                    packets.access_errors + messages.protocol_errors;
    sum.marked_packets += packets.marked_packets;
    sum.flows += report.flows;
    sum.expected_senders = report.hint.peers;
    sum.flow_state_bytes += messenger.flow_memory().state;
    sum.flow_queue_bytes += messenger.flow_memory().queues;
    sum.rate_bps += report.limits.rate.real_bps();
    sum.rtt_us = std::max(sum.rtt_us, report.rtt.us());
    sum.weight = report.weight;
    sum.congestion_control = params_.cc;
  });
  // They are read from files, so not under the engine's lock.
  for (HardwareCounter& counter : hardware->hardware_counters()) {
    sum.device_counters.push_back({std::move(counter.name), counter.count});
  }
}

}  // namespace pacecar
