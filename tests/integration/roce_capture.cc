// Writes a capture of standard RC between two software NICs: every operation, a loss and a
// notification of congestion. For roce_capture_test.py.
#include <cstdio>

#include "tests/support/rc_pair.h"
#include "transport/io/decorators/pcap_writer.h"

namespace pacecar::test {
namespace {

int capture(const char* path) {
  auto writer = PcapWriter::create(path, 65'535);
  if (!writer) {
    std::fprintf(stderr, "roce_capture: %s\n", writer.error().message.c_str());
    return 1;
  }
  SoftNicPair pair(rc_config());
  const auto ends = pair.connect({.paced = false, .receives = 8});
  constexpr Bytes kSize = 5000;
  auto& from = pair.memory(0, kSize, Access::kRemoteAll);
  auto& to = pair.memory(1, kSize, Access::kRemoteAll);
  size_t packets = 0;
  pair.lose = [&](size_t side, Datagram& datagram) {
    const std::span<const uint8_t> bytes = datagram.bytes;
    writer->write(pair.now,
                  {test_address(static_cast<uint8_t>(side + 1)),
                   test_address(static_cast<uint8_t>(2 - side))},
                  {&bytes, 1});
    datagram.ecn = Ecn::kCongestion;
    return ++packets == 6;
  };
  size_t posted = 0;
  // Not below 64 bytes: tshark takes shorter sends for something else, whoever sends them.
  for (const Bytes size : {Bytes{64}, Bytes{1023}, Bytes{1024}, kSize}) {
    for (const auto opcode :
         {Opcode::kSend, Opcode::kWrite, Opcode::kWriteWithImm, Opcode::kRead}) {
      const ReceiveRequest receive{
          .local = to.bytes.data(), .length = kSize, .local_key = to.region.key};
      pair.nic(1).post_receives(ends[1], {&receive, 1});
      WorkRequest work_request = SoftNicPair::write(from, to, size);
      work_request.opcode = opcode;
      posted += pair.post(0, ends[0], work_request);
      if (!pair.run_until_completed(0, posted)) return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace pacecar::test

int main(int argc, char** argv) { return argc == 2 ? pacecar::test::capture(argv[1]) : 2; }
