#include "transport/io/decorators/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "transport/base/param_value.h"
#include "transport/base/prng.h"
#include "transport/base/take_until.h"
#include "transport/base/to_number.h"
#include "transport/io/decorators/decorator.h"

namespace pacecar {
namespace {

// The copies take at most this memory, within these bounds of their number.
constexpr size_t kHeldBytes = 16 << 20;
constexpr size_t kLeastHeld = 64;
constexpr size_t kMostHeld = 4096;
constexpr size_t kMaxCopies = 2;  // of one packet

struct HeldPacket {
  std::vector<uint8_t> bytes;
  Address source;
  Ecn ecn = Ecn::kNotCapable;
  uint32_t ipv4_fragment = kIpv4Fragment;
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

void flip_bit(std::span<uint8_t> bytes, uint64_t noise) {
  if (bytes.empty()) return;
  const uint64_t bit = noise % (bytes.size() * 8);
  bytes[bit / 8] ^= static_cast<uint8_t>(1U << (bit % 8));
}

class FaultIo final : public PacketIoDecorator {
 public:
  FaultIo(std::unique_ptr<PacketIo> wrapped, const FaultConfig& config)
      : PacketIoDecorator(std::move(wrapped)),
        config_(config),
        caps_(inner().caps()),
        stream_(Prng(config.seed).next_u64()),
        most_held_(std::clamp<size_t>(kHeldBytes / caps_.datagram_bytes, kLeastHeld, kMostHeld)) {
    if (config.corrupt > 0) caps_.checks_payload = false;
  }

  const PacketIoCaps& caps() const override { return caps_; }
  size_t receive(std::span<RxPacket> packets, Instant now) override;

 private:
  Fate next_fate();
  bool passes(const RxPacket& packet, const Fate& fate) const {
    // A longer one is not one of ours.
    return fate.harmless() || packet.bytes.size() > caps_.datagram_bytes;
  }
  size_t room() const { return most_held_ - held_.size() - handed_out_.size(); }
  void hold(const RxPacket& packet, const Fate& fate, Instant now);
  size_t hand_out_due(std::span<RxPacket> packets, Instant now);
  bool receive_new(std::span<RxPacket> packets, size_t& count, Instant now);

  const FaultConfig config_;
  PacketIoCaps caps_;
  const uint64_t stream_;
  uint64_t packets_ = 0;  // so far
  const size_t most_held_;
  HeldPackets held_;
  std::vector<HeldPackets::node_type> handed_out_;  // by the last receive()
};

// Every packet has a generator of its own.
Fate FaultIo::next_fate() {
  Prng prng(stream_ + packets_++);
  Fate fate;
  fate.lost = prng.chance(config_.loss);
  fate.duplicated = prng.chance(config_.duplicate);
  fate.corrupted = prng.chance(config_.corrupt);
  fate.held = config_.delay + (prng.chance(config_.reorder) ? config_.reorder_by : Duration());
  fate.noise = prng.next_u64();
  return fate;
}

// A copy of the packet, and its duplicate if it has one.
void FaultIo::hold(const RxPacket& packet, const Fate& fate, Instant now) {
  HeldPacket copy{.bytes = {packet.bytes.begin(), packet.bytes.end()},
                  .source = *packet.source,
                  .ecn = packet.ecn,
                  .ipv4_fragment = packet.ipv4_fragment};
  const auto first = held_.emplace(now + fate.held, copy);
  if (fate.corrupted) flip_bit(first->second.bytes, fate.noise);
  if (fate.duplicated) held_.emplace(now + fate.held, std::move(copy));
}

size_t FaultIo::receive(std::span<RxPacket> packets, Instant now) {
  handed_out_.clear();
  size_t count = hand_out_due(packets, now);
  // Zero would mean that nothing waits, so continue if all received packets were lost.
  while (receive_new(packets, count, now) && count == 0) {
  }
  return count + hand_out_due(packets.subspan(count), now);
}

size_t FaultIo::hand_out_due(std::span<RxPacket> packets, Instant now) {
  size_t count = 0;
  while (count < packets.size() && !held_.empty() && held_.begin()->first <= now) {
    handed_out_.push_back(held_.extract(held_.begin()));
    const HeldPacket& packet = handed_out_.back().mapped();
    packets[count++] = {.bytes = packet.bytes,
                        .source = &packet.source,
                        .ecn = packet.ecn,
                        .ipv4_fragment = packet.ipv4_fragment};
  }
  return count;
}

// Adds to the `count` packets that are ready. False: nothing came, or at the limit of held ones.
bool FaultIo::receive_new(std::span<RxPacket> packets, size_t& count, Instant now) {
  // A packet may become two. So packets are received into the later half of the span, and the
  // earlier half has room for the copies.
  const size_t most = std::min((packets.size() - count + 1) / 2, room() / kMaxCopies);
  if (most == 0) return false;
  const size_t first = packets.size() - most;
  const size_t received = inner().receive(packets.subspan(first), now);
  for (size_t i = first; i < first + received; ++i) {
    const RxPacket packet = packets[i];
    const Fate fate = next_fate();
    if (passes(packet, fate)) {
      packets[count++] = packet;
    } else if (!fate.lost) {
      hold(packet, fate, now);
      count += hand_out_due(packets.first(i + 1).subspan(count), now);
    }
  }
  return received > 0;
}

constexpr std::array<std::pair<std::string_view, double FaultConfig::*>, 4> kProbabilities = {
    {{"loss", &FaultConfig::loss},
     {"duplicate", &FaultConfig::duplicate},
     {"corrupt", &FaultConfig::corrupt},
     {"reorder", &FaultConfig::reorder}}};
constexpr std::array<std::pair<std::string_view, Duration FaultConfig::*>, 2> kTimes = {
    {{"delay", &FaultConfig::delay}, {"reorder_by", &FaultConfig::reorder_by}}};

bool parse_part(std::string_view key, std::string_view value, FaultConfig& config) {
  for (const auto& [name, member] : kProbabilities) {
    if (key != name) continue;
    const auto probability = to_number<double>(value);
    config.*member = probability.value_or(-1);
    return config.*member >= 0 && config.*member <= 1;  // NaN fails as well
  }
  for (const auto& [name, member] : kTimes) {
    if (key != name) continue;
    constexpr uint64_t kMostNs = 10'000'000'000;  // longer than any protocol waits
    const auto ns = parse_param(
        {.name = "", .type = ParamType::kDuration, .doc = "", .range = {.max = kMostNs}}, value);
    config.*member = Duration::from_ns(static_cast<int64_t>(ns.value_or(0)));
    return ns.has_value();
  }
  const auto seed = to_number<uint64_t>(value);
  config.seed = seed.value_or(0);
  return key == "seed" && seed.has_value();
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
                      "10us (at most 10s), seed= with a number",
                      part));
    }
  }
  return config;
}

}  // namespace pacecar
