// Writes a capture of standard RC and UC between two software NICs, for roce_capture_test.py: every
// operation, losses and CNPs.
#include <cstdio>

#include "tests/support/standard_pair.h"
#include "transport/io/decorators/pcap_writer.h"

namespace pacecar::test {
namespace {

// Captures every packet; the sixth packet is lost, and all carry a congestion mark.
void record(SoftNicPair& pair, PcapWriter& writer) {
  pair.lose = [&, packets = size_t{0}](size_t side, Datagram& datagram) mutable {
    const std::span<const uint8_t> bytes = datagram.bytes;
    writer.write(pair.now,
                 {test_address(static_cast<uint8_t>(side + 1)),
                  test_address(static_cast<uint8_t>(2 - side))},
                 {&bytes, 1});
    datagram.ecn = Ecn::kCongestion;
    return ++packets == 6;
  };
}

// Not below 64 bytes: tshark takes shorter sends for another protocol.
constexpr Bytes kSizes[] = {64, 1023, 1024, 5000};

bool run_all(SoftNicPair& pair, SoftNicPair::Ends ends, std::span<const Opcode> opcodes,
             uint32_t immediate = 0) {
  auto& from = pair.memory(0, kSizes[3], Access::kRemoteAll);
  auto& to = pair.memory(1, kSizes[3], Access::kRemoteAll);
  for (const Bytes size : kSizes) {
    for (const Opcode opcode : opcodes) {
      const ReceiveRequest receive{
          .local = to.bytes.data(), .length = kSizes[3], .local_key = to.region.key};
      pair.nic(1).post_receives(ends[1], {&receive, 1});
      WorkRequest work_request = SoftNicPair::write(from, to, size);
      work_request.opcode = opcode;
      work_request.immediate = immediate;
      const size_t done = pair.completions[0].size() + pair.post(0, ends[0], work_request);
      if (!pair.run_until_completed(0, done)) return false;
    }
  }
  return true;
}

bool run_invalidations(PcapWriter& writer) {
  constexpr uint32_t kKey = 0xABCD;
  for (const Bytes size : {Bytes{64}, Bytes{5000}}) {
    StandardPair pair;
    record(pair, writer);
    const auto ends = pair.join();
    auto& to = pair.memory(1, size, Access::kRemoteAll);
    const auto bound = pair.nic(1).bind_window(
        {.address = to.bytes.data(), .length = size, .key = kKey, .queue_pair = ends[1]});
    const ReceiveRequest receive = StandardPair::receive(to, 1);
    pair.nic(1).post_receives(ends[1], {&receive, 1});
    WorkRequest send = StandardPair::send(pair.memory(0, size), size, 1);
    send.opcode = Opcode::kSendInvalidate;
    send.immediate = kKey;
    if (!bound || pair.post(0, ends[0], send) != 1 || !pair.run_until_completed(0, 1)) return false;
  }
  return true;
}

int capture(const char* path) {
  auto writer = PcapWriter::create(path);
  if (!writer) {
    std::fprintf(stderr, "roce_capture: %s\n", writer.error().message.c_str());
    return 1;
  }
  SoftNicPair pair(rc_config());
  record(pair, *writer);
  StandardPair unreliable;
  record(unreliable, *writer);
  constexpr Opcode kReliable[] = {Opcode::kSend, Opcode::kWrite, Opcode::kWriteWithImm,
                                  Opcode::kRead};
  constexpr Opcode kUnreliable[] = {Opcode::kSend, Opcode::kSendWithImm, Opcode::kWrite,
                                    Opcode::kWriteWithImm};
  const bool done = run_all(pair, pair.connect({.paced = false, .receives = 8}), kReliable) &&
                    run_all(unreliable, unreliable.join_unreliably(), kUnreliable, 0xC0DE) &&
                    run_invalidations(*writer);
  return done ? 0 : 1;
}

}  // namespace
}  // namespace pacecar::test

int main(int argc, char** argv) { return argc == 2 ? pacecar::test::capture(argv[1]) : 2; }
