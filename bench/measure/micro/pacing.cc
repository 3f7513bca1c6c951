// pacing GBPS [SECONDS]: measures how evenly the packets of a paced flow leave a software NIC, in
// real time (README.md). One thread drives it and its peer, over two DPDK devices joined by rings.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "bench/measure/micro/ring_wire.h"
#include "transport/base/histogram.h"
#include "transport/engine/clock.h"

namespace pacecar {
namespace {

constexpr Bytes kWriteBytes = 1 << 20;
constexpr Bytes kLeastData = 1024;            // smaller packets are the protocol's own
constexpr Bytes kHeadersBelow = 38 + 20 + 8;  // Ethernet with preamble, FCS and gap; IP; UDP
constexpr Duration kWarmUp = Duration::from_ms(50);
constexpr double kPercentiles[] = {50, 90, 99, 99.9, 100};

struct Departure {
  Instant time;
  Bytes wire_bytes = 0;
};

// Records the data packets that the first end sends.
class RecordingWire final : public Wire {
 public:
  explicit RecordingWire(size_t capacity) { departures_.reserve(capacity); }

  const Address& address(size_t side) const override { return wire_.address(side); }
  size_t carry(size_t from, std::span<const TxPacket> packets, std::span<RxPacket, kBurst> arrived,
               Instant now) override {
    const size_t count = wire_.carry(from, packets, arrived, now);
    if (from != 0 || packets.empty()) return count;
    const Instant time = clock_now();
    for (const TxPacket& packet : packets) {
      if (packet.size() < kLeastData || departures_.size() == departures_.capacity()) continue;
      departures_.push_back({time, packet.size() + kHeadersBelow});
    }
    return count;
  }
  const std::vector<Departure>& departures() const { return departures_; }

 private:
  RingWire wire_;
  std::vector<Departure> departures_;
};

void print(const std::vector<Departure>& all, Rate rate) {
  const auto begin = std::ranges::find_if(
      all, [&](const Departure& one) { return one.time - all.front().time >= kWarmUp; });
  const std::span<const Departure> seen(begin, all.end());
  if (seen.size() < 2) give_up("hardly a packet left: give more seconds");
  Histogram errors_ns;
  Bytes bytes = 0;
  for (size_t i = 1; i < seen.size(); ++i) {
    const Duration gap = seen[i].time - seen[i - 1].time;
    const double ideal_ns = static_cast<double>(seen[i - 1].wire_bytes) * 8 / rate.gbps();
    errors_ns.record(static_cast<uint64_t>(std::abs(static_cast<double>(gap.ns()) - ideal_ns)));
    bytes += seen[i - 1].wire_bytes;
  }
  const auto ns = static_cast<double>((seen.back().time - seen.front().time).ns());
  fmt::print("{} packets, rate {:+.3f}%, error of a gap in us:", seen.size(),
             (static_cast<double>(bytes) * 8 / ns / rate.gbps() - 1) * 100);
  for (const double percentile : kPercentiles) {
    fmt::print(" p{:g} {:.2f}", percentile,
               static_cast<double>(errors_ns.value_at_percentile(percentile)) * 1e-3);
  }
  fmt::print("\n");
}

void measure(Rate rate, double seconds) {
  RecordingWire wire(static_cast<size_t>((seconds + 1) * rate.gbps() * 1e9 / 8 / kCostMtu));
  NicPair pair({.mtu = kCostMtu, .burst_bytes = kCostMtu}, kWriteBytes, wire);
  NicEnd& sender = pair.sender();
  const WorkRequest write = pair.write();
  const Instant start = clock_now();
  sender.nic.set_flow_limits(0, {.rate = rate, .window = Bytes{1} << 40}, start);
  for (Instant now = start; (now - start).seconds() < seconds; now = clock_now()) {
    sender.nic.post(sender.queue_pair, {&write, 1});  // as far as its queue has room
    pair.turn(now);
  }
  print(wire.departures(), rate);
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) {
  const double gbps = argc > 1 ? std::atof(argv[1]) : 0;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.4;
  if (gbps >= 1 && gbps <= 400 && seconds > 0.05 && seconds <= 10) {
    pacecar::measure(pacecar::Rate::from_bps(static_cast<uint64_t>(gbps * 1e9)), seconds);
    return 0;
  }
  fmt::print(stderr, "usage: pacing GBPS [SECONDS]: 1 to 400, more than 0.05\n");
  return 2;
}
