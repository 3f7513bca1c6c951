#include "transport/io/decorators/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "transport/io/decorators/decorator.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

constexpr size_t kShownBytes = 16;  // a BTH, and the first bytes of the header after it

class TraceIo final : public PacketIoDecorator {
 public:
  TraceIo(std::unique_ptr<PacketIo> inner, LogSink sink)
      : PacketIoDecorator(std::move(inner)), sink_(sink) {}

  size_t send(std::span<const TxPacket> packets, Instant now) override {
    const size_t taken = inner().send(packets, now);
    for (const TxPacket& packet : packets.first(taken)) {
      begin(now, "tx", *packet.destination);
      fmt::format_to(std::back_inserter(line_), " path {} {} {} B", packet.path,
                     packet.traffic_class == TrafficClass::kData ? "data" : "control",
                     packet.size());
      finish(packet.header);
    }
    return taken;
  }

  size_t receive(std::span<RxPacket> packets, Instant now) override {
    const size_t count = inner().receive(packets, now);
    for (const RxPacket& packet : packets.first(count)) {
      static constexpr std::array<const char*, 4> kEcnNames = {"not-ect", "ect1", "ect0", "ce"};
      begin(now, "rx", *packet.source);
      fmt::format_to(std::back_inserter(line_), " {} {} B",
                     kEcnNames[static_cast<size_t>(packet.ecn)], packet.bytes.size());
      finish(packet.bytes);
    }
    return count;
  }

 private:
  void begin(Instant now, const char* direction, const Address& peer) {
    line_ = fmt::format("{}.{:09} {} {}", now.ns() / 1'000'000'000, now.ns() % 1'000'000'000,
                        direction, to_string(peer));
  }
  void finish(std::span<const uint8_t> bytes) {
    for (const uint8_t byte : bytes.first(std::min(bytes.size(), kShownBytes))) {
      fmt::format_to(std::back_inserter(line_), " {:02x}", byte);
    }
    sink_(LogLevel::kTrace, line_);
  }

  LogSink sink_;
  std::string line_;
};

}  // namespace

std::unique_ptr<PacketIo> trace_packets(std::unique_ptr<PacketIo> inner, LogSink sink) {
  return std::make_unique<TraceIo>(std::move(inner), sink);
}

LogSink log_to(std::FILE* file) {
  return {[](void* context, LogLevel /*level*/, std::string_view line) {
            fmt::print(static_cast<std::FILE*>(context), "{}\n", line);
          },
          file};
}

}  // namespace pacecar
