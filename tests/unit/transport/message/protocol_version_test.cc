// Every record that two processes exchange, byte by byte, with the version that they compare when
// they connect. Processes of one version that encode a record differently would drop packets of
// each other or read wrong numbers, and no other test would notice.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <string>
#include <vector>

#include "cc/grant_word.h"
#include "tests/support/golden.h"
#include "transport/message/control_words.h"
#include "transport/message/eager.h"
#include "transport/message/handshake.h"
#include "transport/wire/extended.h"

namespace pacecar::protocol_version_test {
namespace {

std::string line(const char* name, std::span<const uint8_t> bytes) {
  return fmt::format("{} {:02x}\n", name, fmt::join(bytes, ""));
}

// The record as it is in the memory that the peer writes.
template <typename Record>
std::string memory(const char* name, const Record& record) {
  return line(name, std::bit_cast<std::array<uint8_t, sizeof(Record)>>(record));
}

QueuePairAddress address(uint8_t first) { return {.bytes = {first, 7}, .size = 2}; }

std::string packets() {
  std::array<uint8_t, wire::kDataHeaderBytes> data{};
  wire::encode(wire::DataHeader{.opcode = wire::Opcode::kWriteWithImm,
                                .ack_request = true,
                                .taken_back = true,
                                .joined = true,
                                .destination_qp = 1,
                                .psn = 2,
                                .address = 3,
                                .key = 4,
                                .length = 5,
                                .immediate = 6,
                                .msn = 7,
                                .timestamp = 8},
               data);
  std::array<uint8_t, wire::ack_bytes(1, 1)> ack{};
  wire::encode(wire::AckHeader{.destination_qp = 1,
                               .cumulative = 2,
                               .echo_timestamp = 3,
                               .hold_ns = 4,
                               .received = 5,
                               .marked = 6,
                               .echo_psn = 7,
                               .echo_valid = true,
                               .echo_marked = true},
               std::array<uint64_t, 1>{8},
               std::array<TelemetryHop, 1>{
                   {{.time_ns = 9, .sent_bytes = 10, .queue_bytes = 11, .rate_mbps = 12}}},
               ack);
  std::array<uint8_t, wire::kNakBytes> nak{};
  wire::encode(wire::Nak{.destination_qp = 1, .psn = 2, .echo_timestamp = 3}, nak);
  return line("data_packet", data) + line("ack_packet", ack) + line("nak_packet", nak);
}

std::string control_writes() {
  const Grant grant{.rate = Rate::from_gbps(25),
                    .phase = Duration::from_us(3),
                    .aligned = true,
                    .guessed = true,
                    .validity = Duration::from_us(100),
                    .epoch = 5};
  const Demand demand{.usable = Rate::from_gbps(25), .wanted = 1 << 20, .epoch = 5};
  const CtsSlot slot{.address = 1,
                     .size = 2,
                     .key = 3,
                     .tag = 4,
                     .first_sequence = 5,
                     .group_size = 6,
                     .group_index = 7,
                     .eager_freed = 8,
                     .grant = 9,
                     .sequence = 5};
  const LaneNote note{
      .epoch = 1, .kind = 2, .lanes = 3, .next = 4, .done = {5, 6, 7, 8}, .number = 9};
  return memory("grant", wire::encode_grant(grant)) +
         memory("demand", wire::encode_demand(demand)) +
         memory("credit", wire::encode_grant({.is_credit = true, .credit = 1 << 20, .epoch = 5})) +
         memory("cts_slot", slot) + memory("close", CloseWord::pack(3)) +
         memory("note", seal(note)) +
         memory("immediate", Immediate{.connection = 1, .slot = 2, .writes = 3}.pack()) +
         memory("eager_header", EagerHeader{.next_slot = 1, .number = 2, .size = 3, .tag = 4}) +
         fmt::format("tables send {} receive {} eager cells {}\n", sizeof(SendTable),
                     sizeof(ReceiveTable), EagerCells(32 << 10).bytes());
}

std::string handshake() {
  const FlowEnd end{.data = address(1), .control = address(2), .words = {3, 4}};
  const Offer offer{.sender = {1, 2},
                    .flow = 3,
                    .joined = true,
                    .obeys = allocator_name("pace"),
                    .weight = 4,
                    .eager = 5,
                    .number = 6,
                    .count = 7,
                    .end = end,
                    .table = {8, 9}};
  return line("offer", encode(offer)) +
         line("answer", encode(Answer{.end = end, .eager = 5, .table = {8, 9}}));
}

// The first four bytes of offer and answer are the version.
TEST(ProtocolVersion, ChangesWithEveryRecord) {
  SCOPED_TRACE(
      "a record changed: raise the version of offer and answer (transport/message/handshake.cc), "
      "then write the golden file anew");
  test::expect_golden("protocol.txt", handshake() + control_writes() + packets());
}

}  // namespace
}  // namespace pacecar::protocol_version_test
