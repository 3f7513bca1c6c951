#include "transport/io/decorators/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "transport/base/param_value.h"
#include "transport/base/prng.h"
#include "transport/base/take_until.h"
#include "transport/base/to_number.h"
#include "transport/io/decorators/decorator.h"

namespace pacecar {
namespace {

// The copies of one direction take at most this memory, within these bounds of their number.
constexpr size_t kHeldBytes = 16 << 20;
constexpr size_t kLeastHeld = 64;
constexpr size_t kMostHeld = 4096;
constexpr size_t kMaxCopies = 2;  // of one packet

struct HeldPacket {
  std::vector<uint8_t> bytes;
  Address peer;
  uint16_t path = 0;                                 // of a packet to send
  TrafficClass traffic_class = TrafficClass::kData;  // likewise
  Ecn ecn = Ecn::kNotCapable;                        // of a packet received
};
// By the time at which they may leave; packets of the same time stay in their order.
using HeldPackets = std::multimap<Instant, HeldPacket>;

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

  // The fate of the packet `ahead` packets after the next one. Every packet has a generator of its
  // own, so a second call, after back-pressure, returns the same fate.
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
    Side(const FaultConfig& config, Direction direction, Bytes datagram)
        : fates(config, direction),
          datagram_bytes(datagram),
          most_held(std::clamp<size_t>(kHeldBytes / datagram, kLeastHeld, kMostHeld)) {}

    bool passes(size_t size, const Fate& fate) const {
      return fate.harmless() || size > datagram_bytes;  // not one of ours: left to the inner one
    }
    size_t room() const { return most_held - held.size() - handed_out.size(); }
    bool due(Instant now) const { return !held.empty() && held.begin()->first <= now; }
    // Holds `packet`, and its duplicate if it has one.
    void hold(HeldPacket packet, const Fate& fate, Instant now) {
      const auto first = held.emplace(now + fate.held, packet);
      if (fate.corrupted) flip_bit(first->second.bytes, fate.noise);
      if (fate.duplicated) held.emplace(now + fate.held, std::move(packet));
    }

    Fates fates;
    const size_t datagram_bytes;
    const size_t most_held;
    HeldPackets held;
    std::vector<HeldPackets::node_type> handed_out;  // by the last receive()
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
    size_t run = 0;  // leading packets that pass
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

// False at the limit of held packets.
bool FaultIo::send_harmed(const TxPacket& packet, Instant now) {
  const Fate fate = sending_->fates.peek();
  if (fate.lost) return true;
  if (sending_->room() < kMaxCopies) return false;
  HeldPacket copy{.bytes = {},
                  .peer = *packet.destination,
                  .path = packet.path,
                  .traffic_class = packet.traffic_class};
  for (const auto part : {packet.header, packet.payload, packet.trailer}) {
    copy.bytes.insert(copy.bytes.end(), part.begin(), part.end());
  }
  sending_->hold(std::move(copy), fate, now);
  return true;
}

void FaultIo::send_due(Instant now) {
  while (sending_->due(now)) {
    const HeldPacket& held = sending_->held.begin()->second;
    const TxPacket packet{.header = held.bytes,
                          .payload = {},
                          .trailer = {},
                          .destination = &held.peer,
                          .path = held.path,
                          .traffic_class = held.traffic_class};
    if (inner().send({&packet, 1}, now) == 0) return;
    sending_->held.erase(sending_->held.begin());
  }
}

size_t FaultIo::receive(std::span<RxPacket> packets, Instant now) {
  if (sending_) send_due(now);
  if (!receiving_) return inner().receive(packets, now);
  receiving_->handed_out.clear();
  size_t count = hand_out_due(packets, now);
  // Zero would mean that nothing waits, so continue if all received packets were lost.
  while (receive_new(packets, count, now) && count == 0) {
  }
  return count + hand_out_due(packets.subspan(count), now);
}

size_t FaultIo::hand_out_due(std::span<RxPacket> packets, Instant now) {
  size_t count = 0;
  while (count < packets.size() && receiving_->due(now)) {
    auto& out = receiving_->handed_out;
    out.push_back(receiving_->held.extract(receiving_->held.begin()));
    const HeldPacket& packet = out.back().mapped();
    packets[count++] = {packet.bytes, &packet.peer, packet.ecn};
  }
  return count;
}

// Adds to the `count` packets that are ready. False if nothing came, or at the limit of held
// packets.
bool FaultIo::receive_new(std::span<RxPacket> packets, size_t& count, Instant now) {
  Side& side = *receiving_;
  // A packet may become two. So packets are received into the later half of the span, and the
  // earlier half has room for the copies.
  const size_t room = std::min((packets.size() - count + 1) / 2, side.room() / kMaxCopies);
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
      side.hold({.bytes = {packet.bytes.begin(), packet.bytes.end()},
                 .peer = *packet.source,
                 .ecn = packet.ecn},
                fate, now);
      count += hand_out_due(packets.first(i + 1).subspan(count), now);
    }
  }
  return received > 0;
}

// A number from 0 to `most`.
template <typename T>
bool parse_number(std::string_view text, T most, T& out) {
  const auto value = to_number<T>(text);
  if (!value || std::clamp(*value, T{}, most) != *value) return false;  // NaN fails as well
  out = *value;
  return true;
}

bool parse_time(std::string_view text, Duration& out) {
  constexpr uint64_t kMostNs = 10'000'000'000;  // longer than any protocol waits
  const auto ns = parse_param(
      {.name = "", .type = ParamType::kDuration, .doc = "", .range = {.max = kMostNs}}, text);
  if (ns) out = Duration::from_ns(static_cast<int64_t>(*ns));
  return ns.has_value();
}

bool parse_sides(std::string_view text, FaultConfig& config) {
  config.on_send = text == "send" || text == "both";
  config.on_receive = text == "receive" || text == "both";
  return config.on_send || config.on_receive;
}

bool parse_part(std::string_view key, std::string_view value, FaultConfig& config) {
  if (key == "loss") return parse_number(value, 1.0, config.loss);
  if (key == "duplicate") return parse_number(value, 1.0, config.duplicate);
  if (key == "corrupt") return parse_number(value, 1.0, config.corrupt);
  if (key == "reorder") return parse_number(value, 1.0, config.reorder);
  if (key == "reorder_by") return parse_time(value, config.reorder_by);
  if (key == "delay") return parse_time(value, config.delay);
  if (key == "seed") {
    return parse_number(value, std::numeric_limits<uint64_t>::max(), config.seed);
  }
  if (key == "on") return parse_sides(value, config);
  return false;
}

}  // namespace

std::unique_ptr<PacketIo> inject_faults(std::unique_ptr<PacketIo> inner,
                                        const FaultConfig& config) {
  return std::make_unique<FaultIo>(std::move(inner), config);
}

Result<FaultConfig> parse_fault(std::string_view text) {
  FaultConfig config;
  while (!text.empty()) {
    const std::string_view part = take_until(text, ',');
    std::string_view value = part;
    const std::string_view key = take_until(value, '=');
    if (!parse_part(key, value, config)) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("'{}' is not a fault: write loss=, duplicate=, corrupt= or reorder= with "
                      "a probability of 0 to 1, delay= or reorder_by= with a time such as "
                      "10us (at most 10s), seed= with a number, on= with send, receive or "
                      "both",
                      part));
    }
  }
  return config;
}

}  // namespace pacecar
