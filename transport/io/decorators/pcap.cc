#include "transport/io/decorators/pcap.h"

#include <array>

#include "transport/base/return_if_error.h"
#include "transport/io/decorators/decorator.h"
#include "transport/io/decorators/pcap_writer.h"
#include "transport/wire/roce.h"

namespace pacecar {
namespace {

class PcapIo final : public PacketIoDecorator {
 public:
  PcapIo(std::unique_ptr<PacketIo> inner, PcapWriter writer, const LogSink& log)
      : PacketIoDecorator(std::move(inner)), writer_(std::move(writer)), log_(log) {}
  ~PcapIo() override {
    if (writer_.good()) close();
  }

  size_t send(std::span<const TxPacket> packets, Instant now) override;
  size_t receive(std::span<RxPacket> packets, Instant now) override;

 private:
  void write(Instant now, PcapEndpoints ends, std::span<const std::span<const uint8_t>> parts) {
    if (!writer_.good()) return;
    ends.destination.port = roce::kUdpPort;
    writer_.write(now, ends, parts);
    if (!writer_.good()) close();
  }
  void close() {
    if (const auto closed = writer_.close(); !closed) log_(LogLevel::kWarn, closed.error().message);
  }

  PcapWriter writer_;
  const LogSink log_;
};

size_t PcapIo::send(std::span<const TxPacket> packets, Instant now) {
  const size_t taken = inner().send(packets, now);
  for (const TxPacket& packet : packets.first(taken)) {
    Address source = local_address();
    source.port = source_port(packet.path, packet.traffic_class);
    const std::array parts = {packet.header, packet.payload, packet.trailer};
    write(now, {source, *packet.destination}, parts);
  }
  return taken;
}

size_t PcapIo::receive(std::span<RxPacket> packets, Instant now) {
  const size_t count = inner().receive(packets, now);
  for (const RxPacket& packet : packets.first(count)) {
    write(now, {*packet.source, local_address(), packet.ecn, packet.ipv4_fragment},
          {&packet.bytes, 1});
  }
  return count;
}

}  // namespace

Result<std::unique_ptr<PacketIo>> record_packets(std::unique_ptr<PacketIo> inner,
                                                 const std::string& path, const LogSink& log) {
  ASSIGN_OR_RETURN(auto writer, PcapWriter::create(path));
  return std::make_unique<PcapIo>(std::move(inner), std::move(writer), log);
}

}  // namespace pacecar
