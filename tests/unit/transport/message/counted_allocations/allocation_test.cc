// The pure layers allocate nothing while messages are transferred, and little memory per flow. This
// program replaces operator new to count allocations, and therefore is a program of its own.
#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <span>
#include <string>

#include "cc/pace/receiver.h"
#include "cc/pace/sender.h"
#include "tests/support/pending.h"
#include "tests/support/sim_host.h"
#include "tests/support/soft_nic_pair.h"

namespace {

uint64_t g_allocations = 0;
uint64_t g_bytes = 0;  // allocated and not freed

void* count(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  ++g_allocations;
  g_bytes += malloc_usable_size(memory);
  return memory;
}
void uncount(void* memory) {
  if (memory != nullptr) g_bytes -= malloc_usable_size(memory);
  std::free(memory);
}
void* aligned(std::size_t size, std::align_val_t alignment) {
  const auto align = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(align, (size + align - 1) / align * align);
}

}  // namespace

// The array forms too: the array forms of a sanitizer would not call these scalar forms.
void* operator new(std::size_t size) { return count(std::malloc(size)); }
void* operator new[](std::size_t size) { return count(std::malloc(size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return count(aligned(size, alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return count(aligned(size, alignment));
}
void operator delete(void* memory) noexcept { uncount(memory); }
void operator delete[](void* memory) noexcept { uncount(memory); }
void operator delete[](void* memory, std::size_t) noexcept { uncount(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { uncount(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { uncount(memory); }
void operator delete(void* memory, std::size_t) noexcept { uncount(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { uncount(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { uncount(memory); }

namespace pacecar::test::allocation_test {
namespace {

constexpr size_t kSlots = 8;
constexpr Bytes kSize = 20'000;

// Messages from one host to another, `kSlots` at a time, round after round.
class Stream {
 public:
  Stream(const std::string& congestion_control, WireMode wire_mode) {
    SimFaults faults;
    faults.loss = 0.01;
    faults.duplication = 0.01;
    faults.reordering = 0.05;
    for (size_t port = 0; port < 2; ++port) {
      SimHostConfig config;
      config.congestion_control = congestion_control;
      config.wire_mode = wire_mode;
      hosts_.push_back(std::make_unique<SimHost>(network_, port, port, config));
      memory_[port].resize(kSlots * kSize);
      regions_[port] =
          hosts_[port]
              ->nic()
              .register_memory(memory_[port].data(), memory_[port].size(), Access::kRemoteWrite)
              .value();
    }
    ends_ = connect(*hosts_[0], *hosts_[1], 1, network_.now());
    network_.fabric().set_faults(faults);
  }

  void round() {
    for (size_t i = 0; i < kSlots; ++i) {
      receives_[i].set(MessageRequest::State::kPending);
      receives_[i].clear();
      receives_[i].add(&memory_[1][i * kSize], kSize, 0,
                       {regions_[1].remote_address + i * kSize, regions_[1].key});
      PACECAR_CHECK(hosts_[1]->messenger().receive(ends_.receive, receives_[i], network_.now()));
      sends_[i].set(MessageRequest::State::kPending);
      PACECAR_CHECK(hosts_[0]->messenger().send(
          ends_.send,
          test::pending(sends_[i], {&memory_[0][i * kSize], kSize, 0, regions_[0].key})));
    }
    const auto done = [this] {
      const auto is_done = [](const MessageRequest& request) {
        return request.state() == MessageRequest::State::kDone;
      };
      return std::ranges::all_of(sends_, is_done) && std::ranges::all_of(receives_, is_done);
    };
    PACECAR_CHECK(run(network_, hosts_, network_.now() + Duration::from_s(10), done));
  }
  const NicCounters& counters() { return hosts_[0]->nic().counters(); }

 private:
  SimStar network_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
  std::array<std::vector<uint8_t>, 2> memory_;
  std::array<MemoryRegion, 2> regions_;
  ConnectionPair ends_;
  std::array<MessageSend, kSlots> sends_;
  std::array<MessageReceive, kSlots> receives_;
};

void expect_no_allocation(WireMode wire_mode) {
  for (const std::string congestion_control : {"swift", "pace"}) {
    Stream stream(congestion_control, wire_mode);
    for (int i = 0; i < 20; ++i) stream.round();
    const uint64_t before = g_allocations;
    const uint64_t repaired = stream.counters().packets_retransmitted;
    for (int i = 0; i < 200; ++i) stream.round();
    EXPECT_EQ(g_allocations - before, 0U) << congestion_control;
    EXPECT_GT(stream.counters().packets_retransmitted, repaired) << "no packet was retransmitted";
  }
}

TEST(Allocation, TransfersDoNotAllocate) { expect_no_allocation(WireMode::kExtended); }
TEST(Allocation, TransfersOverStandardRcDoNotAllocate) { expect_no_allocation(WireMode::kRoce); }

// 64 flows from one NIC to one receiver: all become idle and busy by turns, and all grants change.
class PaceFlows {
 public:
  PaceFlows() {
    for (uint32_t flow = 0; flow < kFlows; ++flow) {
      controllers_[flow] = &senders_.add_flow(now_, flow);
      receiver_.add_flow(now_, flow);
      receiver_.on_posted(now_, flow, Bytes{1} << 40);
    }
  }

  void round() {
    for (uint32_t flow = 0; flow < kFlows; ++flow) {
      now_ = now_ + Duration::from_ns(300);
      stats_[flow].backlog = stats_[flow].backlog > 0 ? 0 : 1'000'000;
      if (stats_[flow].backlog == 0) stats_[flow].acked += 1'000'000;
      controllers_[flow]->on_ack(now_, {.rtt = Duration::from_us(9),
                                        .acked = 4096,
                                        .in_flight = 40'960,
                                        .sent = stats_[flow].acked + 40'960});
      refresh(flow);
      receiver_.on_arrival(now_, flow, 4096, {1000 + flow, 4096});
      receiver_.on_foreign_arrival(now_, 4096);
      exchange_words();
    }
  }
  uint64_t words() const { return words_; }

 private:
  static constexpr uint32_t kFlows = 64;
  static constexpr FlowEnvironment kLink{.line_rate = Rate::from_gbps(400),
                                         .mtu = 4096,
                                         .overhead = 64,
                                         .burst_bytes = 4096,
                                         .base_rtt = Duration::from_us(8)};

  void refresh(uint32_t flow) {
    const auto demand = controllers_[flow]->demand(now_, stats_[flow]);
    if (demand) receiver_.on_demand(now_, flow, *demand);
    controllers_[flow]->decide(now_);
  }
  void exchange_words() {
    std::array<GrantUpdate, 8> updates;
    while (const size_t count = receiver_.poll_grants(now_, updates)) {
      words_ += count;
      for (const GrantUpdate& update : std::span(updates).first(count)) {
        controllers_[update.flow]->on_grant(now_, update.grant);
        refresh(update.flow);
      }
    }
    std::array<uint32_t, 8> changed;
    while (const size_t count = senders_.poll_changed(now_, changed)) {
      for (const uint32_t flow : std::span(changed).first(count)) refresh(flow);
    }
  }

  Instant now_ = Instant::from_ns(1'000'000);
  PaceSenders senders_{kLink, PaceConstants{}, kFlows};
  PaceReceiver receiver_{kLink, kFlows};
  std::array<Controller*, kFlows> controllers_{};
  std::array<FlowStats, kFlows> stats_;
  uint64_t words_ = 0;
};

TEST(Allocation, RateChangesDoNotAllocate) {
  PaceFlows flows;
  const uint64_t before = g_allocations;
  for (int i = 0; i < 200; ++i) flows.round();
  EXPECT_EQ(g_allocations - before, 0U);
  EXPECT_GT(flows.words(), 10'000U);
}

// The bytes that one more flow allocates at the NIC: measured, and as the NIC reports them.
struct FlowBytes {
  uint64_t measured = 0;
  QueuePairMemory reported;
};

FlowBytes flow_bytes(uint32_t window_packets) {
  SoftNicConfig config = SoftNicPair::default_config();
  config.window_packets = window_packets;
  SoftNicPair pair(config);
  pair.connect({.flow = 0});  // memory of the first flow only
  FlowBytes bytes;
  for (const bool paced : {true, false}) {
    const QueuePairConfig queue_pair{
        .flow = 1,
        .traffic_class = paced ? TrafficClass::kData : TrafficClass::kControl,
        .paced = paced,
        .work_requests = paced ? 256U : 64U};
    const auto peer_id = pair.nic(1).create_queue_pair(queue_pair);
    const auto peer = pair.nic(1).queue_pair_address(*peer_id);
    const uint64_t before = g_bytes;
    const auto id = pair.nic(0).create_queue_pair(queue_pair);
    EXPECT_TRUE(pair.nic(0).connect_queue_pair(*id, peer.view()));
    bytes.measured += g_bytes - before;
    const QueuePairMemory memory = pair.nic(0).queue_pair_memory(queue_pair);
    bytes.reported.state += memory.state;
    bytes.reported.queues += memory.queues;
  }
  return bytes;
}

TEST(Allocation, FlowStateIsAtMost64KiB) {
  std::printf("window_packets  measured  NIC: state  NIC: queues (bytes per flow)\n");
  for (uint32_t window = 64; window <= 16384; window *= 4) {
    const FlowBytes bytes = flow_bytes(window);
    std::printf("%14u  %8llu  %10llu  %11llu\n", window,
                static_cast<unsigned long long>(bytes.measured),
                static_cast<unsigned long long>(bytes.reported.state),
                static_cast<unsigned long long>(bytes.reported.queues));
    EXPECT_LE(bytes.reported.state, 64U * 1024);
    const auto reported = static_cast<double>(bytes.reported.state + bytes.reported.queues);
    EXPECT_NEAR(static_cast<double>(bytes.measured) / reported, 1.0, 0.1) << window;
  }
}

}  // namespace
}  // namespace pacecar::test::allocation_test
