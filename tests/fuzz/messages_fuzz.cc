// A messenger with a good peer and a hostile one (hostile_peer.h). The first byte chooses the
// congestion control; then each byte is an operation, followed by its operands.
//
// Checked: no byte beyond a buffer is written, no receive reports more bytes than its buffer holds,
// and messages from and to the good peer arrive unchanged.
#include <array>
#include <memory>
#include <optional>

#include "cc/registry.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/hostile_peer.h"
#include "tests/fuzz/margined_memory.h"
#include "tests/support/connect_messengers.h"
#include "tests/support/memory_nic.h"

namespace pacecar::messages_fuzz {
namespace {

using fuzz::HostileEnd;
using fuzz::HostilePeer;
using fuzz::Input;
using test::MemoryNic;

constexpr size_t kBuffer = 6000;  // more than one write
constexpr size_t kMaxMessages = 96;
enum Host : uint32_t { kVictim, kGood, kHostile };

// A registered buffer between margins that nothing may write, neither by its key nor otherwise.
struct Buffer {
  Buffer(MemoryNic& nic, size_t bytes, uint8_t first)
      : size(bytes), memory(std::max<size_t>(bytes, 1)) {  // a region of 0 bytes is refused
    for (size_t i = 0; i < size; ++i) data()[i] = static_cast<uint8_t>(first + i + i / 256);
    region = nic.register_memory(data(), memory.size(), Access::kRemoteWrite).value();
  }
  uint8_t* data() { return memory.data(); }

  size_t size;
  fuzz::MarginedMemory memory;
  MemoryRegion region;
  bool registered = true;
};

struct Message {
  MessageRequest& request() { return sends ? static_cast<MessageRequest&>(send) : receive; }

  MessageSend send;
  MessageReceive receive;
  std::vector<std::unique_ptr<Buffer>> buffers;
  bool sends = false;
};

class World {
 public:
  explicit World(Input& input)
      : congestion_control_(controllers()[input.below(controllers().size())].name) {
    for (uint32_t host : {kVictim, kGood, kHostile}) {
      nics_[host] = std::make_unique<MemoryNic>(all_, host);
    }
    for (uint32_t host : {kVictim, kGood}) {
      messengers_[host] = std::move(Messenger::create(nic(host),
                                                      {.identity = test::identity_of_host(host),
                                                       .congestion_control = congestion_control_,
                                                       .line_rate = Rate::from_gbps(100),
                                                       .max_connections = 32,
                                                       .silence_limit = Duration::from_ms(100),
                                                       .eager = HostilePeer::kEager},
                                                      now_)
                                        .value());
    }
    hostile_.emplace(nic(kHostile), test::identity_of_host(kHostile));
    to_good_ = test::connect_messengers(victim(), good(), kGood, now_);
    from_good_ = test::connect_messengers(good(), victim(), kVictim, now_);
    join_hostile(input);
    join_hostile(input);
  }
  ~World() {
    for (auto& messenger : messengers_) messenger.reset();
  }

  void run(Input& input) {
    while (!input.empty()) {
      step(input);
      check(messages_);
    }
    finish();
    for (const auto& message : messages_) {
      for (const auto& buffer : message->buffers) buffer->memory.check_margins();
    }
  }

 private:
  MemoryNic& nic(Host host) { return *nics_[host]; }
  MemoryNic& nic(uint32_t host) { return *nics_[host]; }
  Messenger& victim() { return *messengers_[kVictim]; }
  Messenger& good() { return *messengers_[kGood]; }

  void step(Input& input) {
    const uint8_t operation = input.u8();
    switch (operation & 15) {
      case 0:
      case 1: return poll(1 + (operation >> 4));
      case 2: now_ = now_ + Duration::from_us(int64_t{1} << input.u8() % 18); return poll(1);
      case 3: return transfer(input);
      case 4: return victim_sends(input);
      case 5: return victim_receives(input);
      case 6: return victim_ends(input);
      case 7: return join_hostile(input);
      default: return hostile_->act(input);
    }
  }

  void poll(int rounds) {
    for (; rounds > 0; --rounds) {
      for (const auto& nic : nics_) nic->turn(4);
      for (uint32_t host : {kVictim, kGood}) {
        messengers_[host]->poll(now_);
        messengers_[host]->post_control_writes(now_);
      }
      drop_completions();
      now_ = now_ + Duration::from_us(1);
    }
  }
  void drop_completions() {
    std::array<Completion, 16> some;
    while (nic(kHostile).poll(some) > 0) {
    }
  }

  // --- the victim's application ---
  Message& message(bool sends) {
    Message& made = *messages_.emplace_back(std::make_unique<Message>());
    made.sends = sends;
    made.request().set(MessageRequest::State::kPending);
    return made;
  }
  void send(Messenger& from, uint32_t host, ConnectionId connection, Message& made, size_t size,
            int32_t tag) {
    const auto first = static_cast<uint8_t>(messages_.size());
    Buffer& buffer = *made.buffers.emplace_back(std::make_unique<Buffer>(nic(host), size, first));
    made.send.operation = {
        .data = buffer.data(), .size = size, .tag = tag, .key = buffer.region.key, .host = true};
    if (!from.send(connection, made.send)) made.request().set(MessageRequest::State::kFree);
  }
  void receive(Messenger& to, uint32_t host, ConnectionId connection, Message& made, size_t size,
               uint32_t count, int32_t tag) {
    made.receive.clear();
    for (uint32_t i = 0; i < count; ++i) {
      Buffer& buffer = *made.buffers.emplace_back(std::make_unique<Buffer>(nic(host), size, 0));
      made.receive.add(buffer.data(), size, tag + static_cast<int32_t>(i),
                       {buffer.region.remote_address, buffer.region.key});
    }
    if (!to.receive(connection, made.receive, now_))
      made.request().set(MessageRequest::State::kFree);
  }
  static size_t size_of_message(Input& input) {
    const uint8_t choice = input.u8();
    return (choice & 1) != 0 ? choice * 2 : input.u16() % (kBuffer + 1);
  }

  // A message between the victim and its good peer.
  void transfer(Input& input) {
    if (messages_.size() + 2 > kMaxMessages || transfers_.size() == kMaxMessages / 4) return;
    const bool outwards = input.u8() % 2 == 0;
    const size_t size = size_of_message(input);
    Message& sent = message(true);
    Message& received = message(false);
    const ConnectionPair& ends = outwards ? to_good_ : from_good_;
    const uint32_t from = outwards ? kVictim : kGood;
    const uint32_t to = outwards ? kGood : kVictim;
    const auto tag = static_cast<int32_t>(transfers_.size());
    const bool ahead = input.u8() % 2 == 0;
    if (ahead) send(*messengers_[from], from, ends.send, sent, size, tag);
    receive(*messengers_[to], to, ends.receive, received, size, 1, tag);
    if (!ahead) send(*messengers_[from], from, ends.send, sent, size, tag);
    transfers_.push_back({&sent, &received});
  }
  HostileEnd* some_end(Input& input, bool sends) {
    auto& ends = hostile_->ends();
    if (ends.empty()) return nullptr;
    HostileEnd& end = ends[input.below(ends.size())];
    return end.sends == sends && end.connection ? &end : nullptr;
  }
  void victim_sends(Input& input) {
    const HostileEnd* end = some_end(input, false);
    if (end == nullptr || messages_.size() >= kMaxMessages) return;
    Message& made = message(true);
    const size_t size = size_of_message(input);
    send(victim(), kVictim, *end->connection, made, size, input.u8() % 4);
  }
  void victim_receives(Input& input) {
    const HostileEnd* end = some_end(input, true);
    if (end == nullptr || messages_.size() >= kMaxMessages) return;
    Message& made = message(false);
    const size_t size = size_of_message(input);
    const uint32_t count = 1 + input.u8() % kMaxGroup;
    receive(victim(), kVictim, *end->connection, made, size, count, input.u8() % 4);
  }
  void victim_ends(Input& input) {
    const uint8_t choice = input.u8();
    auto& ends = hostile_->ends();
    if (choice % 2 == 0 && !ends.empty()) {
      HostileEnd& end = ends[choice / 2 % ends.size()];
      if (!end.connection) return;
      if (end.sends) {
        victim().close_receive(*end.connection);
      } else {
        victim().close_send(*end.connection, now_);
      }
      end.connection.reset();
    } else if (!messages_.empty()) {
      // Deregisters the memory of a message, if the good peer is not its other end.
      Message& one = *messages_[choice / 2 % messages_.size()];
      if (is_transfer(one)) return;
      for (const auto& buffer : one.buffers) {
        if (!buffer->registered) continue;
        victim().forget_memory(buffer->region.key);
        nic(kVictim).deregister_memory(buffer->region);
        buffer->registered = false;
      }
    }
  }
  bool is_transfer(const Message& one) const {
    return std::ranges::any_of(
        transfers_, [&one](const auto& pair) { return pair[0] == &one || pair[1] == &one; });
  }

  void join_hostile(Input& input) {
    if (input.u8() % 2 == 0) {
      hostile_->receive(victim(), nic(kVictim), now_, input);
    } else {
      hostile_->send(victim(), nic(kVictim), now_, congestion_control_, input);
    }
  }

  // --- what must hold ---
  static void check(const std::vector<std::unique_ptr<Message>>& messages) {
    for (const auto& message : messages) {
      if (message->request().state() != MessageRequest::State::kDone) continue;
      if (message->sends) {
        PACECAR_CHECK(message->request().sizes[0] <= message->buffers[0]->size);
        continue;
      }
      PACECAR_CHECK(message->request().count == message->buffers.size());
      for (size_t i = 0; i < message->buffers.size(); ++i) {
        PACECAR_CHECK(message->request().sizes[i] <= message->buffers[i]->size);
      }
    }
  }
  void finish() {
    const auto done = [this] {
      return std::ranges::all_of(transfers_, [](const auto& pair) {
        return std::ranges::all_of(pair, [](Message* message) {
          return message->request().state() != MessageRequest::State::kPending;
        });
      });
    };
    for (int i = 0; i < 2000 && !done(); ++i) {
      poll(1);
      now_ = now_ + Duration::from_us(20);
    }
    for (const auto& [sent, received] : transfers_) {
      PACECAR_CHECK(sent->request().state() == MessageRequest::State::kDone);
      PACECAR_CHECK(received->request().state() == MessageRequest::State::kDone);
      const Buffer& from = *sent->buffers[0];
      PACECAR_CHECK(received->request().sizes[0] == from.size);
      const uint8_t* const bytes = from.memory.data();
      PACECAR_CHECK(std::equal(bytes, bytes + from.size, received->buffers[0]->data()));
    }
  }

  using ConnectionPair = test::ConnectionPair;
  const std::string congestion_control_;
  std::vector<MemoryNic*> all_;
  std::array<std::unique_ptr<MemoryNic>, 3> nics_;
  std::array<std::unique_ptr<Messenger>, 2> messengers_;
  Instant now_ = Instant::from_ns(1'000'000'000);
  ConnectionPair to_good_;
  ConnectionPair from_good_;
  std::vector<std::unique_ptr<Message>> messages_;
  std::vector<std::array<Message*, 2>> transfers_;
  std::optional<HostilePeer> hostile_;
};

}  // namespace

FUZZ_TARGET(messages) {
  fuzz::Input input(data, size);
  World(input).run(input);
  return 0;
}

}  // namespace pacecar::messages_fuzz
