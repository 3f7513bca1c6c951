// udp_datagram_cost DATAGRAMS: moves so many joined datagrams of 56 KiB between two software NICs
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

struct End {
  explicit End(Prng& random)
      : io(open_udp({.interface = "lo", .paths = 1}).value()),
        nic(SoftNicConfig{.address = io->local_address(),
                          .line_rate = Rate::from_gbps(100),
                          .mtu = kMtu,
                          .burst_bytes = kPacketsPerDatagram * kMtu,
                          .flows = 2,
                          .queue_pairs = 4,
                          .full_checksum = false,
                          .security = Security::kAuth,
                          .in_place_bytes = 128 * 1024},
            random_source(random), Instant::from_ns(1'000'000)),
        port(*io, nic),
        memory(kWriteBytes),
        region(nic.register_memory(memory.data(), memory.size(), Access::kRemoteWrite).value()),
        queue_pair(nic.create_queue_pair({.work_requests = 256}).value()) {
    nic.set_flow_limits(0, {.rate = Rate::from_gbps(1'000'000), .window = Bytes{1} << 40},
                        Instant::from_ns(1'000'000));
  }

  std::unique_ptr<PacketIo> io;
  SoftNic nic;
  SoftPort port;
  std::vector<uint8_t> memory;
  MemoryRegion region;
  QueuePairId queue_pair;
};

// instruction_counts.py counts this function.
[[gnu::noinline]] size_t receive_data(NicPort& port, Instant now) { return port.receive(now); }

// Returns the number of received datagrams.
uint64_t move(End& from, End& to, uint64_t datagrams) {
  const WorkRequest write{.local = from.memory.data(),
                          .remote = to.region.remote_address,
                          .length = kWriteBytes,
                          .local_key = from.region.key,
                          .remote_key = to.region.key,
                          .opcode = Opcode::kWriteWithImm};
  std::array<Completion, 64> completions;
  Instant now = Instant::from_ns(1'000'000);
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
  const uint64_t datagrams = pacecar::packets_to_move(argc, argv);
  if (datagrams == 0) return 2;
  pacecar::Prng random(1);
  pacecar::End from(random);
  pacecar::End to(random);
  const auto join = [](pacecar::End& end, const pacecar::End& peer) {
    const auto address = peer.nic.queue_pair_address(peer.queue_pair);
    return end.nic.connect_queue_pair(end.queue_pair, address.view()).has_value();
  };
  if (!join(from, to) || !join(to, from)) return 1;
  return pacecar::move(from, to, datagrams) >= datagrams ? 0 : 1;
}
