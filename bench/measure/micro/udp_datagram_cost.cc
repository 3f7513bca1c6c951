// udp_datagram_cost DATAGRAMS: moves that many joined datagrams of 56 KiB between two software NICs
// over UDP sockets. For instruction_counts.py, which counts the instructions in user space that
// receiving a datagram takes.
#include "bench/measure/micro/nic_pair.h"
#include "transport/engine/soft_port.h"
#include "transport/io/udp/udp_io.h"

namespace pacecar {
namespace {

constexpr Bytes kMtu = 8192;
constexpr Bytes kPacketsPerDatagram = 7;
constexpr Bytes kWriteBytes = 8 * kPacketsPerDatagram * kMtu;

struct End : NicEnd {
  explicit End(std::unique_ptr<PacketIo> opened)
      : NicEnd({.address = opened->local_address(),
                .mtu = kMtu,
                .burst_bytes = kPacketsPerDatagram * kMtu,
                .security = Security::kAuth},
               kWriteBytes),
        io(std::move(opened)),
        port(*io, nic) {}

  std::unique_ptr<PacketIo> io;
  SoftPort port;
};

// instruction_counts.py counts this function.
[[gnu::noinline]] size_t receive_data(NicPort& port, Instant now) { return port.receive(now); }

// Returns the number of received datagrams.
uint64_t move(End& from, End& to, uint64_t datagrams) {
  const WorkRequest write = from.write_to(to);
  std::array<Completion, 64> completions;
  Instant now = NicEnd::kStart;
  uint64_t packets = 0;
  while (packets < datagrams * kPacketsPerDatagram) {
    from.nic.post(from.queue_pair, {&write, 1});
    now = now + Duration::from_us(5);
    for (End* end : {&from, &to}) end->nic.on_time(now);
    from.port.transmit(now);
    packets += receive_data(to.port, now);
    to.port.transmit(now);
    from.port.receive(now);
    for (End* end : {&from, &to}) {
      while (end->nic.poll(completions) > 0) {
      }
    }
  }
  return packets / kPacketsPerDatagram;
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) {
  return pacecar::cost_main(argc, argv, [](uint64_t datagrams) {
    pacecar::End from(pacecar::open_udp({.interface = "lo", .paths = 1}).value());
    pacecar::End to(pacecar::open_udp({.interface = "lo", .paths = 1}).value());
    return from.connect(to) && to.connect(from) && pacecar::move(from, to, datagrams) >= datagrams;
  });
}
