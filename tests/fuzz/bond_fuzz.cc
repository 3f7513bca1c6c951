// Either end of a bonded connection of two lanes, with a hostile peer (hostile_peer.h) at the other
// end of both lanes, which also writes the notes of ends of bonds about lost lanes. The first byte
// chooses which end is attacked; then each byte is an operation, followed by its operands. Checked:
// no byte beyond a buffer is written, and no receive reports more bytes than its buffer holds.
#include <memory>
#include <mutex>
#include <vector>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/hostile_peer.h"
#include "tests/fuzz/margined_memory.h"
#include "tests/support/memory_nic.h"
#include "transport/api/bond/bonded_end.h"
#include "transport/engine/clock.h"
#include "transport/nic/nic_port.h"

namespace pacecar::bond_fuzz {
namespace {

using fuzz::HostilePeer;
using fuzz::Input;
using test::MemoryNic;

constexpr size_t kLanes = 2;
constexpr size_t kBuffer = 9000;  // large enough to be divided between the lanes
constexpr size_t kMaxMessages = 24;

class MemoryPort final : public NicPort {
 public:
  MemoryPort(std::vector<MemoryNic*>& all, uint32_t number) : nic_(all, number) {}
  MemoryNic& nic() override { return nic_; }
  size_t receive(Instant) override { return 0; }
  void on_time(Instant) override {}
  size_t transmit(Instant) override {
    static std::mutex one_at_a_time;  // all lanes share the hostile peer's NIC
    const std::lock_guard lock(one_at_a_time);
    nic_.turn(4);
    return 0;
  }
  Instant next_deadline() const override { return Instant::never(); }
  bool prepare_to_wait(Instant /*now*/) override { return true; }
  int wait_fd() const override { return -1; }
  const Address& address() const override { return address_; }

 private:
  MemoryNic nic_;
  Address address_;
};

// Memory that is registered with the NICs of all lanes.
struct Buffer {
  explicit Buffer(std::span<MemoryNic* const> nics) : bytes(kBuffer) {
    std::vector<MemoryRegion> regions;
    for (MemoryNic* nic : nics) {
      regions.push_back(nic->register_memory(data(), kBuffer, Access::kRemoteWrite).value());
    }
    memory = std::make_unique<Memory>(std::move(regions), 0, std::nullopt);
  }
  uint8_t* data() { return bytes.data(); }

  fuzz::MarginedMemory bytes;
  std::unique_ptr<Memory> memory;
};

struct Message {
  Request* request = nullptr;
  std::vector<size_t> sizes;
};

class World {
 public:
  explicit World(Input& input) : sends_(input.u8() % 2 == 0) {
    Params params;
    params.timeout = Duration::from_s(2);
    params.cc = "fixed";
    params.eager = HostilePeer::kEager;
    params.max_connections = 4;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      auto port = std::make_unique<MemoryPort>(all_, lane);
      nics_.push_back(&port->nic());
      engines_.push_back(
          Engine::open(params, std::move(port), {1, static_cast<uint8_t>(lane)}).value());
    }
    hostile_nic_ = std::make_unique<MemoryNic>(all_, kLanes);
    hostile_ = std::make_unique<HostilePeer>(*hostile_nic_, NicIdentity{9});
    join(input);
    alone([this](auto&) {
      for (size_t i = 0; i < 3; ++i) buffers_.push_back(std::make_unique<Buffer>(nics_));
    });
  }
  ~World() {
    send_.reset();
    receive_.reset();
    for (const auto& engine : engines_) {  // so that no closing connection waits for the peer
      engine->exclusively([this](Messenger&, Nic&, Instant) {
        for (const auto& end : hostile_->ends()) end.victim->break_queue_pair(end.data);
      });
    }
    engines_.clear();
  }

  void run(Input& input) {
    while (joined() && !input.empty()) step(input);
    for (const auto& buffer : buffers_) buffer->bytes.check_margins();
  }

 private:
  bool joined() const { return send_ != nullptr || receive_ != nullptr; }
  // Calls `use` with the messengers while no engine polls, as NICs and tables may only change then.
  template <typename Use>
  void alone(Use use) {
    engines_[0]->exclusively([&](Messenger& one, Nic&, Instant) {
      engines_[1]->exclusively([&](Messenger& other, Nic&, Instant) {
        std::array<Messenger*, kLanes> messengers{&one, &other};
        use(messengers);
      });
    });
  }

  void join(Input& input) {
    std::vector<BondLane> lanes;
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const fuzz::HostileEnd* end = nullptr;
      alone([&](auto& messengers) {
        end = sends_ ? hostile_->receive(*messengers[lane], *nics_[lane], clock_now(), input,
                                         Messenger::Role::kLane)
                     : hostile_->send(*messengers[lane], *nics_[lane], clock_now(), "", input);
      });
      if (end == nullptr) return;
      lanes.push_back({.at = {.nic = {.engine = engines_[lane],
                                      .name = "lane",
                                      .timeout = Duration::from_s(2),
                                      .log = {}},
                              .direction = sends_ ? Direction::kSend : Direction::kReceive,
                              .connection = *end->connection,
                              .peer = "hostile"},
                       .member = lane});
    }
    if (sends_) {
      send_ = make_bonded_send(std::move(lanes), keeper_);
    } else {
      receive_ = make_bonded_receive(std::move(lanes), keeper_);
    }
  }
  BondedEnd& bonded_end() {
    return sends_ ? dynamic_cast<BondedEnd&>(*send_) : dynamic_cast<BondedEnd&>(*receive_);
  }

  void step(Input& input) {
    const uint8_t operation = input.u8();
    switch (operation % 8) {
      case 0: return start(input);
      case 1: return test_all();
      case 2: bonded_end().drive(clock_now()); return;
      case 3: return deregister(input);
      default:
        alone([&](auto&) { hostile_->act(input); });
        if (operation >= 128) bonded_end().drive(clock_now());
    }
  }
  void start(Input& input) {
    if (messages_.size() == kMaxMessages) return;
    Buffer& buffer = *buffers_[input.below(buffers_.size())];
    const size_t size = input.u16() % (kBuffer + 1);
    const int tag = input.u8() % 4;
    if (sends_) {
      const auto request = send_->isend(buffer.data(), size, tag, buffer.memory.get());
      if (request && *request != nullptr) messages_.push_back({*request, {size}});
      return;
    }
    std::vector<ReceiveBuffer> several;
    Message message;
    for (int i = 1 + input.u8() % 3; i > 0; --i) {
      several.push_back({buffer.data(), size, tag + i, buffer.memory.get()});
      message.sizes.push_back(size);
    }
    const auto request = receive_->irecv(several);
    if (!request || *request == nullptr) return;
    message.request = *request;
    messages_.push_back(message);
  }
  void test_all() {
    std::erase_if(messages_, [this](const Message& message) {
      const auto result = sends_ ? send_->test(message.request) : receive_->test(message.request);
      if (result && !result->done) return false;
      for (size_t i = 0; result && i < message.sizes.size(); ++i) {
        PACECAR_CHECK(result->sizes[i] <= message.sizes[i]);
      }
      return true;
    });
  }
  // Deregisters memory as Context does.
  void deregister(Input& input) {
    if (input.u8() % 4 != 0) return;
    auto& buffer = buffers_[input.below(buffers_.size())];
    bonded_end().forget_memory(*buffer->memory);
    for (size_t lane = 0; lane < kLanes; ++lane) {
      engines_[lane]->exclusively([&](Messenger& messenger, Nic& nic, Instant) {
        messenger.forget_memory(buffer->memory->region(lane).key);
        nic.deregister_memory(buffer->memory->region(lane));
      });
    }
    buffer->bytes.check_margins();
    std::erase(buffers_, buffer);
    buffers_.push_back(nullptr);
    alone([&](auto&) { buffers_.back() = std::make_unique<Buffer>(nics_); });
  }

  const bool sends_;
  std::vector<MemoryNic*> all_;
  std::vector<MemoryNic*> nics_;
  std::vector<std::shared_ptr<Engine>> engines_;
  std::unique_ptr<MemoryNic> hostile_nic_;
  std::unique_ptr<HostilePeer> hostile_;
  std::shared_ptr<BondKeeper> keeper_ = std::make_shared<BondKeeper>();  // without its thread
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Message> messages_;
  std::unique_ptr<SendConnection> send_;
  std::unique_ptr<ReceiveConnection> receive_;
};

}  // namespace

FUZZ_TARGET(bond) {
  fuzz::Input input(data, size);
  World(input).run(input);
  return 0;
}

}  // namespace pacecar::bond_fuzz
