// Two messengers over NICs in memory: posted work waits until the test delivers it, and the test
// decides how much work a NIC accepts and which results it reports. One thread.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/connect_messengers.h"
#include "tests/support/pending.h"
#include "transport/nic/nic.h"

namespace pacecar::test {

class ScriptedNic final : public Nic {
 public:
  static NicCaps usual() {
    return {.line_rate = Rate::from_gbps(100),
            .mtu = 1024,
            .burst_bytes = 4096,
            .flows = 8,
            .queue_pairs = 16,
            .regions = 64};
  }
  explicit ScriptedNic(NicCaps caps) : caps_(std::move(caps)) {}

  struct Posted {
    QueuePairId queue_pair = 0;
    WorkRequest request;
    bool data() const { return request.opcode == Opcode::kWriteWithImm; }
  };
  std::deque<Posted> posted;   // not yet delivered or failed
  size_t room = 1000;          // work requests that are still accepted
  size_t refused = 0;          // calls of post() without room
  bool counts_silent = true;   // NicCounters::silent_packets_received
  uint32_t regions_left = 64;  // that can still be registered
  uint32_t queue_pairs_left = 64;
  std::vector<std::pair<FlowId, FlowLimits>> limits;
  std::deque<FlowSignal> signals;
  std::deque<FlowArrival> arrivals;
  std::deque<Completion> completions;
  NicCounters counted;
  bool reports_arrivals = false;
  bool connects = true;    // else connect_queue_pair fails
  Bytes state_factor = 1;  // bytes of memory for each work request

  size_t count(bool data) const {
    size_t count = 0;
    for (const Posted& each : posted) count += each.data() == data ? 1 : 0;
    return count;
  }
  // The oldest work request arrives and is acknowledged.
  void deliver_one(ScriptedNic& peer) {
    const Posted write = posted.front();
    const WorkRequest& request = write.request;
    if (request.length > 0) {
      std::memcpy(reinterpret_cast<void*>(request.remote), request.local, request.length);
    }
    ++peer.counted.data_packets_received;
    if (write.data()) {
      peer.completions.push_back({.bytes = request.length,
                                  .queue_pair = peers_[write.queue_pair],
                                  .immediate = request.immediate,
                                  .kind = CompletionKind::kReceived});
    } else if (peer.counts_silent) {
      ++peer.counted.silent_packets_received;
    }
    acknowledge_one();
  }
  void deliver(ScriptedNic& peer) {
    while (!posted.empty()) deliver_one(peer);
  }
  // The oldest work request completes without being delivered.
  void acknowledge_one(CompletionStatus status = CompletionStatus::kOk) {
    const Posted write = posted.front();
    posted.pop_front();
    completions.push_back({.work_request = write.request.id,
                           .queue_pair = write.queue_pair,
                           .kind = CompletionKind::kSent,
                           .status = status});
  }
  uint32_t registered() const { return registered_; }
  size_t queue_pairs() const { return alive_; }

  const NicCaps& caps() const override { return caps_; }
  const NicCounters& counters() const override { return counted; }
  Result<MemoryRegion> register_memory(void* address, size_t length, Access) override {
    if (regions_left == 0) return fail(ErrorCode::kUnavailable, "no regions");
    --regions_left;
    ++registered_;
    return MemoryRegion{static_cast<uint8_t*>(address), length, ++last_key_,
                        reinterpret_cast<uint64_t>(address)};
  }
  std::shared_ptr<void> deregister_memory(const MemoryRegion&) override {
    --registered_;
    ++regions_left;
    return nullptr;
  }
  Result<QueuePairId> create_queue_pair(const QueuePairConfig&) override {
    if (queue_pairs_left == 0) return fail(ErrorCode::kUnavailable, "no queue pairs");
    --queue_pairs_left;
    ++alive_;
    return ++last_queue_pair_;
  }
  QueuePairAddress queue_pair_address(QueuePairId id) const override {
    QueuePairAddress address;
    std::memcpy(address.bytes.data(), &id, sizeof id);
    address.size = sizeof id;
    return address;
  }
  Result<void> connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) override {
    if (!connects) return fail(ErrorCode::kPeer, "not an address");
    std::memcpy(&peers_[id], remote.data(), sizeof id);
    return {};
  }
  QueuePairMemory queue_pair_memory(const QueuePairConfig& config) const override {
    return {.state = config.work_requests * state_factor, .queues = config.paced ? 2U : 1U};
  }
  void destroy_queue_pair(QueuePairId id) override {
    std::erase_if(posted, [id](const Posted& each) { return each.queue_pair == id; });
    --alive_;
    ++queue_pairs_left;
  }
  size_t post(QueuePairId id, std::span<const WorkRequest> requests) override {
    size_t taken = 0;
    for (; taken < requests.size() && room > 0; ++taken, --room) {
      posted.push_back({id, requests[taken]});
    }
    if (taken < requests.size()) ++refused;
    return taken;
  }
  size_t poll(std::span<Completion> to) override { return take(completions, to); }
  size_t poll_signals(std::span<FlowSignal> to) override { return take(signals, to); }
  void report_arrivals(bool wanted) override { reports_arrivals = wanted; }
  size_t poll_arrivals(std::span<FlowArrival> to) override { return take(arrivals, to); }
  void set_flow_limits(FlowId flow, const FlowLimits& given, Instant) override {
    limits.emplace_back(flow, given);
  }

 private:
  template <typename T>
  static size_t take(std::deque<T>& from, std::span<T> to) {
    size_t count = 0;
    for (; count < to.size() && !from.empty(); ++count) {
      to[count] = from.front();
      from.pop_front();
    }
    return count;
  }

  NicCaps caps_;
  std::map<QueuePairId, QueuePairId> peers_;
  QueuePairId last_queue_pair_ = 0;
  uint32_t last_key_ = 0;
  uint32_t registered_ = 0;
  size_t alive_ = 0;
};

// Messages go from 0 to 1.
struct ScriptedPair {
  using State = MessageRequest::State;

  static MessengerConfig fixed() {
    return {.congestion_control = "fixed", .line_rate = Rate::from_gbps(100), .max_connections = 8};
  }
  explicit ScriptedPair(const NicCaps& caps = ScriptedNic::usual(),
                        MessengerConfig config = fixed())
      : nic{ScriptedNic(caps), ScriptedNic(caps)} {
    for (size_t host = 0; host < 2; ++host) {
      config.identity = identity_of_host(host);
      messengers_[host] = Messenger::create(nic[host], config, now).value();
      regions_[host] =
          nic[host].register_memory(memory[host].data(), kMemory, Access::kRemoteWrite).value();
    }
    ends = connect();
  }

  Messenger& messenger(size_t host) { return *messengers_[host]; }
  ConnectionPair connect() { return connect_messengers(messenger(0), messenger(1), 1, now); }
  MessageSend& send(Bytes size) { return send(ends, size); }
  MessageSend& send(const ConnectionPair& by, Bytes size) {
    MessageSend& request = sends_.emplace_back();
    PACECAR_CHECK(
        messenger(0).send(by.send, pending(request, {memory[0].data(), size, 0, regions_[0].key})));
    return request;
  }
  MessageReceive& receive(Bytes size = kMemory) { return receive(ends, size); }
  // One receive request with several buffers.
  MessageReceive& receive(const ConnectionPair& by, Bytes size, uint32_t buffers = 1) {
    MessageReceive& request = pending(receives_.emplace_back());
    for (uint32_t i = 0; i < buffers; ++i) {
      request.add(memory[1].data(), size, 0, remote_address_of(regions_[1], memory[1].data()));
    }
    PACECAR_CHECK(messenger(1).receive(by.receive, request, now));
    return request;
  }
  void turn(size_t host) {
    messenger(host).poll(now);
    messenger(host).post_control_writes(now);
  }
  // Delivers all work, and polls both ends, until nothing changes.
  void run() {
    do {
      nic[0].deliver(nic[1]);
      nic[1].deliver(nic[0]);
      turn(0);
      turn(1);
    } while (!nic[0].posted.empty() || !nic[1].posted.empty());
  }
  // Advances the time in small steps, like an engine that polls often.
  void run_for(Duration time, Duration step = Duration::from_ms(1)) {
    const Instant end = now + time;
    for (; now < end; now = std::min(now + step, end)) run();
  }

  static constexpr Bytes kMemory = 64 << 10;
  Instant now = Instant::from_ns(100'000'000'000);
  std::array<ScriptedNic, 2> nic;
  std::array<std::vector<uint8_t>, 2> memory{std::vector<uint8_t>(kMemory, 7),
                                             std::vector<uint8_t>(kMemory)};
  ConnectionPair ends;

 private:
  std::array<std::unique_ptr<Messenger>, 2> messengers_;
  std::array<MemoryRegion, 2> regions_;
  std::deque<MessageSend> sends_;
  std::deque<MessageReceive> receives_;
};

}  // namespace pacecar::test
