#include "transport/io/decorators/fault.h"

#include <algorithm>
#include <optional>

#include "transport/base/prng.h"
#include "transport/io/decorators/decorator.h"
#include "transport/io/decorators/held_packets.h"

namespace pacecar {
namespace {

// Memory for the copies of one direction; unused slots are not touched.
constexpr size_t kPoolBytes = 16 << 20;
constexpr size_t kMinSlots = 64;
constexpr size_t kMaxSlots = 4096;
constexpr size_t kMaxCopies = 2;  // of one packet

size_t slots_for(Bytes datagram_bytes) {
  return std::clamp<size_t>(kPoolBytes / datagram_bytes, kMinSlots, kMaxSlots);
}

struct Fate {
  bool lost = false;
  bool duplicated = false;
  bool corrupted = false;
  Duration held;
  uint64_t noise = 0;  // chooses the bit to flip

  bool harmless() const { return !lost && !duplicated && !corrupted && held == Duration(); }
};

enum class Direction : uint64_t { kSend, kReceive };

// The fates of the packets of one direction, in their order.
class Fates {
 public:
  Fates(const FaultConfig& config, Direction direction)
      : config_(config),
        stream_(Prng(config.seed * 2 + static_cast<uint64_t>(direction)).next_u64()) {}

  // The fate of the packet `ahead` places after the next one. Every packet has a generator of its
  // own, so a second call, after back-pressure, returns the same.
  Fate peek(size_t ahead = 0) const {
    Prng prng(stream_ + next_ + ahead);
    Fate fate;
    fate.lost = prng.chance(config_.loss);
    fate.duplicated = prng.chance(config_.duplicate);
    fate.corrupted = prng.chance(config_.corrupt);
    fate.held = config_.delay + (prng.chance(config_.reorder) ? config_.reorder_by : Duration());
    fate.noise = prng.next_u64();
    return fate;
  }
  void advance(size_t packets) { next_ += packets; }

 private:
  FaultConfig config_;
  uint64_t stream_;
  uint64_t next_ = 0;
};

void flip_bit(std::span<uint8_t> bytes, uint64_t noise) {
  if (bytes.empty()) return;
  const uint64_t bit = noise % (bytes.size() * 8);
  bytes[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
}

// Holds the copies of a packet: `fill` writes its bytes and properties into each.
template <typename Fill>
void hold_copies(HeldPackets& pool, const Fate& fate, Instant now, size_t size, const Fill& fill) {
  for (int copy = 0; copy < (fate.duplicated ? 2 : 1); ++copy) {
    HeldPackets::Packet& held = pool.hold(now + fate.held, size);
    fill(held);
    if (fate.corrupted && copy == 0) flip_bit(held.bytes, fate.noise);
  }
}

class FaultIo final : public PacketIoDecorator {
 public:
  FaultIo(std::unique_ptr<PacketIo> wrapped, const FaultConfig& config)
      : PacketIoDecorator(std::move(wrapped)), caps_(inner().caps()) {
    if (config.corrupt > 0) caps_.checks_payload = false;
    if (config.on_send) sending_.emplace(config, Direction::kSend, caps_.datagram_bytes);
    if (config.on_receive) receiving_.emplace(config, Direction::kReceive, caps_.datagram_bytes);
  }

  const PacketIoCaps& caps() const override { return caps_; }
  size_t send(std::span<const TxPacket> packets, Instant now) override;
  size_t receive(std::span<RxPacket> packets, Instant now) override;

 private:
  struct Side {
    Side(const FaultConfig& config, Direction direction, Bytes datagram_bytes)
        : fates(config, direction), pool(slots_for(datagram_bytes), datagram_bytes) {}

    bool passes(size_t size, const Fate& fate) const {
      return fate.harmless() || size > pool.slot_bytes();  // not one of ours: left to the inner one
    }

    Fates fates;
    HeldPackets pool;
  };

  void send_due(Instant now);
  bool send_harmed(const TxPacket& packet, Instant now);
  size_t hand_out_due(std::span<RxPacket> packets, Instant now);
  bool receive_new(std::span<RxPacket> packets, size_t& count, Instant now);

  PacketIoCaps caps_;
  std::optional<Side> sending_;
  std::optional<Side> receiving_;
};

size_t FaultIo::send(std::span<const TxPacket> packets, Instant now) {
  if (!sending_) return inner().send(packets, now);
  send_due(now);
  size_t taken = 0;
  while (taken < packets.size()) {
    const auto rest = packets.subspan(taken);
    size_t run = 0;  // leading packets that nothing happens to
    while (run < rest.size() && sending_->passes(rest[run].size(), sending_->fates.peek(run)))
      ++run;
    const size_t sent = run > 0 ? inner().send(rest.first(run), now) : 0;
    taken += sent;
    sending_->fates.advance(sent);
    if (sent < run || run == rest.size() || !send_harmed(rest[run], now)) break;
    ++taken;
    sending_->fates.advance(1);
    send_due(now);
  }
  return taken;
}

// False when the pool is used up.
bool FaultIo::send_harmed(const TxPacket& packet, Instant now) {
  const Fate fate = sending_->fates.peek();
  if (fate.lost) return true;
  if (sending_->pool.free_slots() < kMaxCopies) return false;
  hold_copies(sending_->pool, fate, now, packet.size(), [&](HeldPackets::Packet& copy) {
    uint8_t* out = copy.bytes.data();
    for (const auto part : {packet.header, packet.payload, packet.trailer}) {
      out = std::copy(part.begin(), part.end(), out);
    }
    copy.peer = *packet.destination;
    copy.path = packet.path;
    copy.traffic_class = packet.traffic_class;
  });
  return true;
}

void FaultIo::send_due(Instant now) {
  while (const HeldPackets::Packet* held = sending_->pool.next(now)) {
    const TxPacket packet{.header = held->bytes,
                          .payload = {},
                          .trailer = {},
                          .destination = &held->peer,
                          .path = held->path,
                          .traffic_class = held->traffic_class};
    if (inner().send({&packet, 1}, now) == 0) return;
    sending_->pool.pop();
    sending_->pool.give_back();
  }
}

size_t FaultIo::receive(std::span<RxPacket> packets, Instant now) {
  if (sending_) send_due(now);
  if (!receiving_) return inner().receive(packets, now);
  receiving_->pool.give_back();  // what the last call handed out
  size_t count = hand_out_due(packets, now);
  // Zero would mean that nothing waits, so continue if all received packets were lost.
  while (receive_new(packets, count, now) && count == 0) {
  }
  return count + hand_out_due(packets.subspan(count), now);
}

size_t FaultIo::hand_out_due(std::span<RxPacket> packets, Instant now) {
  size_t count = 0;
  while (count < packets.size()) {
    const HeldPackets::Packet* held = receiving_->pool.next(now);
    if (held == nullptr) break;
    packets[count++] = {held->bytes, &held->peer, held->ecn};
    receiving_->pool.pop();
  }
  return count;
}

// Adds to the `count` packets that are ready. False when nothing came or the pool is used up.
bool FaultIo::receive_new(std::span<RxPacket> packets, size_t& count, Instant now) {
  Side& side = *receiving_;
  // Each may become two: received into the later half of the span, they leave room for the copies.
  const size_t room =
      std::min((packets.size() - count + 1) / 2, side.pool.free_slots() / kMaxCopies);
  if (room == 0) return false;
  const size_t first = packets.size() - room;
  const size_t received = inner().receive(packets.subspan(first), now);
  for (size_t i = first; i < first + received; ++i) {
    const RxPacket packet = packets[i];
    const Fate fate = side.fates.peek();
    side.fates.advance(1);
    if (side.passes(packet.bytes.size(), fate)) {
      packets[count++] = packet;
    } else if (!fate.lost) {
      hold_copies(side.pool, fate, now, packet.bytes.size(), [&](HeldPackets::Packet& copy) {
        std::copy(packet.bytes.begin(), packet.bytes.end(), copy.bytes.begin());
        copy.peer = *packet.source;
        copy.ecn = packet.ecn;
      });
      count += hand_out_due(packets.first(i + 1).subspan(count), now);
    }
  }
  return received > 0;
}

}  // namespace

std::unique_ptr<PacketIo> inject_faults(std::unique_ptr<PacketIo> inner,
                                        const FaultConfig& config) {
  return std::make_unique<FaultIo>(std::move(inner), config);
}

}  // namespace pacecar
