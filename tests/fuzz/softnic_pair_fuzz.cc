// Two software NICs, a network that does anything to their packets, and somebody who forges some.
// The first byte chooses wire mode and security; then each is an operation with its operands.
//
// Whatever happens, nothing outside registered memory is written, and nothing into memory that was
// deregistered. What completes has the bytes that were posted: with tags or encryption always,
// without as long as nothing was forged. With them nothing but the peer's own packets is counted as
// received, each once. In the end an honest network brings every request to its end.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "tests/fuzz/forged_packets.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/margined_memory.h"
#include "tests/support/rc_pair.h"
#include "tests/support/wire_reencode.h"

namespace pacecar::softnic_pair_fuzz {
namespace {

using fuzz::Input;
using test::Datagram;

constexpr size_t kSlot = 1024;  // of one write
constexpr size_t kSlots = 10;
constexpr uint8_t kUntouched = fuzz::MarginedMemory::kUntouched;
constexpr size_t kLinks = 3;
constexpr size_t kMaxOnTheWay = 128;
constexpr size_t kMaxWrites = 64;
constexpr size_t kMaxBlocks = 6;
constexpr int kMaxConnects = 10;

enum class Mode : uint8_t { kOff, kAuth, kEncrypt, kRoce, kModes };

// Byte `at` of the data that a side writes into a slot; never kUntouched.
uint8_t pattern(size_t side, size_t slot, size_t at) {
  const auto byte = static_cast<uint8_t>(101 * side + 37 * slot + 11 * at + at / 256 + 1);
  return byte == kUntouched ? 0 : byte;
}

// Registered memory.
struct Block {
  Block(SoftNic& nic, Access access) : memory(kSlots * kSlot) {
    region = nic.register_memory(memory.data(), memory.size(), access).value();
  }
  const uint8_t* slot(size_t number) const { return memory.data() + number * kSlot; }

  fuzz::MarginedMemory memory;
  std::optional<fuzz::MarginedMemory> last;  // as it was when it was deregistered
  MemoryRegion region;
  size_t used = 0;  // slots
};

struct Write {
  size_t from = 0;
  size_t link = 0;
  uint32_t generation = 0;  // of the link
  const Block* to = nullptr;
  size_t slot = 0;
  Bytes length = 0;
  bool immediate = false;
  bool good = true;  // else its key belongs to no region
  bool sent = false;
  bool received = false;
};

struct Link {
  test::SoftNicPair::Ends ends{};
  uint32_t generation = 0;
  bool up = false;
  std::array<bool, 2> broken{};
};

class World {
 public:
  explicit World(Input& input)
      : mode_(static_cast<Mode>(input.u8() % static_cast<uint8_t>(Mode::kModes))),
        config_(make_config(mode_, input.u8())),
        pair_(config_) {
    for (size_t side = 0; side < 2; ++side) {
      source_[side] = std::make_unique<Block>(pair_.nic(side), Access::kRemoteRead);
      for (size_t i = 0; i < kSlots * kSlot; ++i) {
        source_[side]->memory.data()[i] = pattern(side, i / kSlot, i % kSlot);
      }
      source_before_[side] = source_[side]->memory;
      add_block(side);
    }
    for (size_t link = 0; link < kLinks; ++link) connect(link);
  }

  void run(Input& input) {
    while (!input.empty()) step(input);
    settle();
    check_memory();
  }

 private:
  static SoftNicConfig make_config(Mode mode, uint8_t options) {
    SoftNicConfig config =
        mode == Mode::kRoce ? test::rc_config() : test::SoftNicPair::default_config();
    config.searches_mtu = mode != Mode::kRoce && (options & 32) != 0;  // in pieces at first
    config.burst_bytes = 4 * (config.mtu = config.searches_mtu ? 1024 : 256);
    config.window_packets = 64;
    config.completions = 256;
    if (mode == Mode::kAuth) config.security = Security::kAuth;
    if (mode == Mode::kEncrypt) config.security = Security::kEncrypt;
    if (mode != Mode::kRoce) config.joins_packets = (options & 1) != 0;
    config.packets_per_key_log2 = 2 + (options >> 1) % 8;
    config.paths = mode != Mode::kRoce && (options & 16) != 0 ? 4 : 1;
    return config;
  }
  bool guarded() const { return config_.security != Security::kOff; }
  SoftNic& nic(size_t side) { return pair_.nic(side); }

  void add_block(size_t side) {
    blocks_[side].push_back(std::make_unique<Block>(nic(side), Access::kRemoteWrite));
  }
  void connect(size_t number) {
    Link& link = links_[number];
    if (link.up || connects_ == kMaxConnects) return;
    ++connects_;
    const auto ends = pair_.connect(
        {.flow = static_cast<FlowId>(number), .paced = number != kLinks - 1, .work_requests = 8});
    link = {.ends = ends, .generation = link.generation + 1, .up = true};
  }
  void disconnect(size_t number) {
    Link& link = links_[number];
    if (!link.up) return;
    pair_.collect();
    take_completions();
    for (size_t side = 0; side < 2; ++side) nic(side).destroy_queue_pair(link.ends[side]);
    link.up = false;
  }

  void step(Input& input) {
    const uint8_t operation = input.u8();
    const size_t side = operation >> 7;
    switch (operation & 15) {
      case 0:
      case 1: return post(side, input);
      case 2:
      case 3: return transmit(side);
      case 4:
      case 5: return deliver_oldest(side, 1 + input.u8() % 16);
      case 6: return deliver_any(side, input);
      case 7: return lose(side, input);
      case 8: return change(side, input);
      case 9: return forge(side, input);
      case 10: return replay(side, input);
      case 11: return pass_time(Duration::from_us(int64_t{1} << input.u8() % 18));
      case 12: return end_something(side, input);
      case 13: return mark(side, input);
      case 14: return raw(side, input);
      default: return honestly(1 + input.u8() % 8);
    }
  }

  void post(size_t side, Input& input) {
    const uint8_t choice = input.u8();
    const size_t number = choice % kLinks;
    Link& link = links_[number];
    if (!link.up || link.broken[side] || writes_.size() == kMaxWrites) return;
    if (mode_ == Mode::kRoce && number == kLinks - 1 && (choice & 32) != 0) {
      return post_read(side, link, input);
    }
    Block& to = *blocks_[1 - side].back();
    if (to.used == kSlots || source_[side]->region.length == 0) return;
    Write write{.from = side,
                .link = number,
                .generation = link.generation,
                .to = &to,
                .slot = to.used,
                .length = (choice & 64) != 0 ? input.u8() : input.u16() % (kSlot + 1),
                .immediate = (choice & 128) != 0,
                .good = (choice & 24) != 24};
    const WorkRequest request{
        .id = writes_.size(),
        .local = source_[side]->slot(write.slot),
        .remote = to.region.remote_address + write.slot * kSlot,
        .length = write.length,
        .local_key = source_[side]->region.key,
        .remote_key = write.good ? to.region.key : ~to.region.key,
        .immediate = write.immediate ? static_cast<uint32_t>(writes_.size()) : 0,
        .opcode = write.immediate ? Opcode::kWriteWithImm : Opcode::kWrite,
        .awaited = (choice & 4) != 0,
        .passing = number == kLinks - 1 && (choice & 8) != 0};
    if (nic(side).post(link.ends[side], {&request, 1}) == 0) return;
    ++to.used;
    writes_.push_back(write);
  }
  // Into a slot of our own.
  void post_read(size_t side, const Link& link, Input& input) {
    Block& to = *blocks_[side].back();
    if (to.used == kSlots || source_[1 - side]->region.length == 0) return;
    const Bytes length = input.u16() % (kSlot + 1);
    const WorkRequest request{.id = writes_.size(),
                              .local = to.slot(to.used),
                              .remote = source_[1 - side]->region.remote_address + to.used * kSlot,
                              .length = length,
                              .local_key = to.region.key,
                              .remote_key = source_[1 - side]->region.key,
                              .opcode = Opcode::kRead};
    if (nic(side).post(link.ends[side], {&request, 1}) == 0) return;
    writes_.push_back({.from = 1 - side,
                       .link = kLinks - 1,
                       .generation = link.generation,
                       .to = &to,
                       .slot = to.used++,
                       .length = length});
  }

  void transmit(size_t side) {
    nic(side).on_time(pair_.now);
    for (Datagram& datagram : pair_.transmit(side)) {
      if (mode_ != Mode::kRoce) PACECAR_CHECK(datagram.kind() != wire::PacketKind::kMalformed);
      genuine_[1 - side].insert(datagram.bytes);
      if (history_[1 - side].size() < kMaxOnTheWay) history_[1 - side].push_back(datagram);
      if (wire_[1 - side].size() < kMaxOnTheWay) wire_[1 - side].push_back(std::move(datagram));
    }
    collect();
  }
  void collect() {
    pair_.collect();
    take_completions();
  }

  void deliver_oldest(size_t to, size_t count) {
    for (; count > 0 && !wire_[to].empty(); --count) {
      const Datagram datagram = std::move(wire_[to].front());
      wire_[to].erase(wire_[to].begin());
      deliver(to, datagram);
    }
  }
  void deliver_any(size_t to, Input& input) {
    if (wire_[to].empty()) return;
    const size_t which = input.below(wire_[to].size());
    const Datagram datagram = wire_[to][which];
    if (which % 2 == 0) wire_[to].erase(wire_[to].begin() + static_cast<long>(which));
    deliver(to, datagram);
  }
  void lose(size_t to, Input& input) {
    if (wire_[to].empty()) return;
    wire_[to].erase(wire_[to].begin() + static_cast<long>(input.below(wire_[to].size())));
  }
  // One byte, or the end.
  void change(size_t to, Input& input) {
    if (wire_[to].empty()) return;
    Datagram datagram = wire_[to][input.below(wire_[to].size())];
    const uint16_t at = input.u16();
    const uint8_t by = input.u8();
    if (by == 0) {
      datagram.bytes.resize(at % (datagram.bytes.size() + 1));
    } else {
      datagram.bytes[at % datagram.bytes.size()] ^= by;
    }
    deliver(to, datagram);
  }
  void replay(size_t to, Input& input) {
    if (history_[to].empty()) return;
    deliver(to, history_[to][input.below(history_[to].size())]);
  }
  void mark(size_t to, Input& input) {
    if (wire_[to].empty()) return;
    Datagram& datagram = wire_[to][input.below(wire_[to].size())];
    datagram.ecn = Ecn::kCongestion;
    const bool data = mode_ != Mode::kRoce && datagram.kind() == wire::PacketKind::kData;
    if (data && input.u8() % 2 == 1) datagram.trim();
  }
  void raw(size_t to, Input& input) {
    const auto bytes = input.bytes(input.u8());
    Datagram datagram{.bytes = {bytes.begin(), bytes.end()}};
    if (const auto again = wire::reencode(datagram.bytes)) datagram.bytes = *again;
    tainted_ = tainted_ || !guarded();
    deliver(to, datagram);
  }
  void pass_time(Duration time) {
    pair_.now = pair_.now + time;
    for (size_t side = 0; side < 2; ++side) nic(side).on_time(pair_.now);
    collect();
  }

  // A packet that was seen, with fields of the input's choice, and with a checksum that is right.
  void forge(size_t to, Input& input) {
    if (history_[to].empty()) return;
    const Datagram& seen = history_[to][input.below(history_[to].size())];
    tainted_ = tainted_ || !guarded();
    if (mode_ == Mode::kRoce) return forge_standard(to, seen, input);
    const size_t trailer = trailer_bytes(config_.security);
    const std::span<const uint8_t> all(seen.bytes);
    const auto body = all.first(all.size() - trailer);
    Datagram forged = seen;
    forged.bytes = fuzz::changed_body(body, input);
    if (guarded()) {
      forged.bytes.resize(forged.bytes.size() - wire::kChecksumBytes);
      forged.bytes.insert(forged.bytes.end(), all.end() - static_cast<long>(trailer), all.end());
      uint8_t* const counter = &forged.bytes[forged.bytes.size() - trailer];
      wire::store_be32(wire::load_be32(counter) + input.u8(), counter);
    }
    deliver(to, forged);
  }
  void forge_standard(size_t to, const Datagram& seen, Input& input) {
    roce::Packet packet;
    if (roce::decode(seen.bytes, packet) != roce::Decoded::kOk) return;
    fuzz::change_packet(packet, input);
    if (roce::shape_of(packet.opcode).kind == roce::Kind::kUnknown) return;
    deliver(to, test::forge(1 - to, packet));
  }

  // With tags, a packet that the peer did not send, or that was accepted before, changes nothing.
  void deliver(size_t to, const Datagram& datagram) {
    const bool checked = guarded() && !datagram.trimmed && !config_.joins_packets;
    const NicCounters before = nic(to).counters();
    pair_.deliver(to, datagram);
    if (checked) {
      const NicCounters& after = nic(to).counters();
      const bool taken = after.data_packets_received != before.data_packets_received ||
                         after.acks_received != before.acks_received ||
                         after.duplicates != before.duplicates ||
                         after.access_errors != before.access_errors ||
                         after.out_of_window != before.out_of_window;
      if (taken) {
        PACECAR_CHECK(genuine_[to].contains(datagram.bytes));
        PACECAR_CHECK(taken_[to].insert(datagram.bytes).second);
      }
    }
    collect();
  }

  void end_something(size_t side, Input& input) {
    const uint8_t choice = input.u8();
    switch (choice % 4) {
      case 0: disconnect(choice / 4 % kLinks); return;
      case 1: return connect(choice / 4 % kLinks);
      case 2: {
        if (blocks_[side].size() == kMaxBlocks) return;
        Block& last = *blocks_[side].back();
        nic(side).deregister_memory(last.region);
        last.last = last.memory;
        add_block(side);
        return;
      }
      default:
        pair_.limit(side, choice / 4 % kLinks,
                    {.rate = Rate::from_bps(uint64_t{1} << (20 + input.u8() % 20)),
                     .window = Bytes{1} << input.u8() % 20});
    }
  }

  // Everything that is sent arrives, for some rounds.
  void honestly(int rounds) {
    for (; rounds > 0; --rounds) {
      for (size_t side = 0; side < 2; ++side) {
        transmit(side);
        deliver_oldest(1 - side, kMaxOnTheWay);
      }
      pass_time(test::SoftNicPair::kDelay);
    }
  }

  void take_completions() {
    for (size_t side = 0; side < 2; ++side) {
      for (const Completion& completion : pair_.completions[side]) on_completion(side, completion);
      pair_.completions[side].clear();
    }
  }
  void on_completion(size_t side, const Completion& completion) {
    switch (completion.kind) {
      case CompletionKind::kBroken:
        for (Link& link : links_) {
          if (link.up && link.ends[side] == completion.queue_pair) link.broken[side] = true;
        }
        return;
      case CompletionKind::kSent: {
        Write& write = writes_.at(completion.work_request);
        PACECAR_CHECK(!write.sent);
        write.sent = true;
        if (completion.status == CompletionStatus::kOk) {
          PACECAR_CHECK(tainted_ || write.good || write.length == 0);
          check_arrived(write);
        }
        return;
      }
      default:
        if (tainted_) return;
        Write& write = writes_.at(completion.immediate);
        PACECAR_CHECK(write.immediate && !write.received && write.from == 1 - side);
        PACECAR_CHECK(write.good || write.length == 0);
        PACECAR_CHECK(write.length == completion.bytes);
        write.received = true;
        check_arrived(write);
    }
  }
  void check_arrived(const Write& write) const {
    if (tainted_) return;
    const uint8_t* const sent = source_[write.from]->slot(write.slot);
    PACECAR_CHECK(std::equal(sent, sent + write.length, write.to->slot(write.slot)));
  }

  bool settled() const {
    return std::ranges::all_of(writes_, [this](const Write& write) {
      const Link& link = links_[write.link];
      const bool over =
          !link.up || link.generation != write.generation || link.broken[0] || link.broken[1];
      return over || write.sent;
    });
  }
  void settle() {
    for (size_t side = 0; side < 2; ++side) {
      for (FlowId flow = 0; flow < kLinks; ++flow) {
        pair_.limit(side, flow, {.rate = Rate::from_gbps(100), .window = Bytes{1} << 40});
      }
    }
    take_completions();
    pair_.lose = [this](size_t from, const Datagram& datagram) {
      genuine_[1 - from].insert(datagram.bytes);
      return false;
    };
    const bool done = pair_.run(
        [this] {
          take_completions();
          return settled();
        },
        Duration::from_s(20));
    PACECAR_CHECK(done || tainted_);
  }

  void check_memory() {
    for (size_t side = 0; side < 2; ++side) {
      source_[side]->memory.check_margins();
      PACECAR_CHECK(source_[side]->memory == source_before_[side]);
      for (const auto& block : blocks_[side]) {
        block->memory.check_margins();
        PACECAR_CHECK(!block->last || *block->last == block->memory);
        if (!tainted_) check_slots(*block);
      }
    }
  }
  // Each byte is as it was, or that of the one write that goes there.
  void check_slots(const Block& block) const {
    std::array<const Write*, kSlots> writer{};
    for (const Write& write : writes_) {
      if (write.to == &block && write.good) writer[write.slot] = &write;
    }
    const auto untouched = [](uint8_t byte) { return byte == kUntouched; };
    for (size_t slot = 0; slot < kSlots; ++slot) {
      const uint8_t* const begin = block.slot(slot);
      const Bytes length = writer[slot] == nullptr ? 0 : writer[slot]->length;
      for (size_t i = 0; i < length; ++i) {
        const uint8_t sent = source_[writer[slot]->from]->slot(slot)[i];
        PACECAR_CHECK(begin[i] == sent || begin[i] == kUntouched);
      }
      PACECAR_CHECK(std::all_of(begin + length, begin + kSlot, untouched));
    }
  }

  const Mode mode_;
  const SoftNicConfig config_;
  test::SoftNicPair pair_;
  std::array<std::unique_ptr<Block>, 2> source_;
  std::array<std::optional<fuzz::MarginedMemory>, 2> source_before_;
  std::array<std::vector<std::unique_ptr<Block>>, 2> blocks_;  // the last is registered
  std::array<Link, kLinks> links_;
  std::vector<Write> writes_;
  int connects_ = 0;
  bool tainted_ = false;                                   // something was forged that passes
  std::array<std::vector<Datagram>, 2> wire_;              // by destination
  std::array<std::vector<Datagram>, 2> history_;           // by destination
  std::array<std::set<std::vector<uint8_t>>, 2> genuine_;  // by destination
  std::array<std::set<std::vector<uint8_t>>, 2> taken_;    // by destination
};

}  // namespace

FUZZ_TARGET(softnic_pair) {
  Input input(data, size);
  World(input).run(input);
  return 0;
}

}  // namespace pacecar::softnic_pair_fuzz
