// Datagrams of a hostile peer into a connected SoftNic with writes under way. The input is a list
// of commands, each one byte and its operands: raw bytes with the checksum made right, or good
// headers with fields of the input's choice, also without their payload. Whatever comes, nothing
// outside the registered memory is written and no invariant breaks.
#include <algorithm>
#include <array>
#include <vector>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/soft_nic_pair.h"
#include "tests/support/wire_reencode.h"

namespace pacecar::softnic_fuzz {
namespace {

using fuzz::Input;

constexpr size_t kSource = 8192;
constexpr size_t kRegion = 4096;
constexpr size_t kMargin = 64;
constexpr uint8_t kCanary = 0xC5;

class Target {
 public:
  Target() : block_(kRegion + 2 * kMargin, kCanary) {
    region_ = nic().register_memory(&block_[kMargin], kRegion, Access::kRemoteWrite).value();
    const auto& destination = pair_.memory(1, kSource);
    for (uint32_t i = 0; i < 4; ++i) {
      pair_.post(0, ends_[0], test::SoftNicPair::write(source_, destination, kSource, i, i));
    }
    turn();
  }

  void run(Input input) {
    while (!input.empty()) {
      const uint8_t command = input.u8();
      switch (command % 6) {
        case 0: raw(input); break;
        case 1:
        case 2: data(input); break;
        case 3: ack(input); break;
        case 4: nak(input); break;
        default: pair_.now = pair_.now + Duration::from_us(int64_t{1} << (input.u8() % 20));
      }
      turn();
    }
    for (size_t i = 0; i < kMargin; ++i) {
      PACECAR_CHECK(block_[i] == kCanary && block_[kMargin + kRegion + i] == kCanary);
    }
    PACECAR_CHECK(source_.bytes == source_before_);
  }

 private:
  SoftNic& nic() { return pair_.nic(0); }
  uint32_t first_psn(size_t side) {
    const auto address = pair_.nic(side).queue_pair_address(ends_[side]);
    return decode_endpoint(address.view()).value().extended->first_psn;
  }
  void turn() {
    nic().on_time(pair_.now);
    for (const test::Datagram& packet : pair_.transmit(0)) {
      PACECAR_CHECK(packet.kind() != wire::PacketKind::kMalformed);
    }
    pair_.collect();
  }
  void deliver(std::vector<uint8_t> bytes, bool marked = false, bool trimmed = false) {
    pair_.deliver(0, {.bytes = std::move(bytes),
                      .ecn = marked ? Ecn::kCongestion : Ecn::kCapable0,
                      .trimmed = trimmed});
  }

  void raw(Input& input) {
    const auto raw = input.bytes(input.u8());
    std::vector<uint8_t> bytes(raw.begin(), raw.end());
    if (const auto again = wire::reencode(bytes)) bytes = *again;
    deliver(std::move(bytes));
  }
  // Near the numbers that mean something, or anywhere.
  uint32_t some_psn(Input& input, uint32_t reference) {
    const uint8_t choice = input.u8();
    return choice < 0xF0 ? reference + choice : input.u32();
  }
  // A piece, or a question.
  void make_rare(Input& input, wire::DataHeader& header) {
    header.taken_back = false;
    header.pieces = input.u8() % 4;
    if (header.pieces > 0) {
      header.piece = input.u8() % header.pieces;
      return;
    }
    header = {.question = true,
              .destination_qp = header.destination_qp,
              .psn = header.psn,
              .timestamp = header.timestamp};
  }
  void data(Input& input) {
    const uint8_t flags = input.u8();
    wire::DataHeader header{
        .opcode = (flags & 1) != 0 ? wire::Opcode::kWriteWithImm : wire::Opcode::kWrite,
        .ack_request = (flags & 16) != 0,
        .taken_back = (flags & 2) != 0,
        .destination_qp = ends_[0],
        .psn = some_psn(input, peer_psn_) & 0xFFFFFF,
        .address = region_.remote_address + input.u32() % (2 * kRegion) - kRegion / 2,
        .key = (flags & 4) != 0 ? input.u32() : region_.key,
        .msn = some_psn(input, 0) & 0xFFFFFF,
        .timestamp = input.u32()};
    if ((flags & 128) != 0) make_rare(input, header);
    std::span<const uint8_t> payload;
    if (!header.taken_back) payload = input.bytes(input.u8() * ((flags & 8) != 0 ? 16U : 1U));
    header.length = static_cast<uint32_t>(payload.size()) + ((flags & 16) != 0 ? input.u8() : 0);
    if (header.opcode == wire::Opcode::kWriteWithImm) header.immediate = input.u32();
    if (header.question) header.length = 0;
    auto bytes = wire::encode_data(header, payload, wire::Coverage::kFull);
    const bool trimmed = (flags & 64) != 0;
    if (trimmed) bytes.resize(wire::kDataHeaderBytes);
    deliver(std::move(bytes), (flags & 32) != 0, trimmed);
  }
  void ack(Input& input) {
    const uint8_t flags = input.u8();
    const wire::AckHeader header{
        .destination_qp = ends_[0],
        .cumulative = some_psn(input, our_psn_) & 0xFFFFFF,
        .echo_timestamp = static_cast<uint32_t>(pair_.now.ns()) - (input.u32() >> (flags & 31)),
        .hold_ns = input.u32() >> (flags & 31),
        .received = input.u8(),
        .marked = input.u32(),
        .echo_psn = some_psn(input, our_psn_) & 0xFFFFFF,
        .echo_valid = (flags & 32) == 0,
        .echo_marked = (flags & 64) != 0};
    std::vector<uint64_t> bitmap(input.u8() % 8);
    for (uint64_t& word : bitmap) word = uint64_t{input.u32()} << (input.u8() % 33);
    const std::vector<TelemetryHop> hops(input.u8() % (kMaxTelemetryHops + 1),
                                         {.queue_bytes = input.u8(), .rate_mbps = 1});
    deliver(wire::encode_ack(header, bitmap, hops));
  }
  void nak(Input& input) {
    const uint8_t flags = input.u8();
    deliver(wire::encode_nak(
        {.destination_qp = ends_[0],
         .psn = some_psn(input, our_psn_) & 0xFFFFFF,
         .echo_timestamp = static_cast<uint32_t>(pair_.now.ns()) - ((flags & 2) ? input.u32() : 0),
         .syndrome = wire::Syndrome{static_cast<uint8_t>(1 + flags % 3)}}));
  }

  test::SoftNicPair pair_;
  test::SoftNicPair::Ends ends_ = pair_.connect({.work_requests = 8});
  const test::TestMemory& source_ = pair_.memory(0, kSource, Access::kLocalRead);
  const std::vector<uint8_t> source_before_ = source_.bytes;
  std::vector<uint8_t> block_;  // the middle of it is what the peer may write
  MemoryRegion region_;
  uint32_t our_psn_ = first_psn(0);
  uint32_t peer_psn_ = first_psn(1);
};

}  // namespace

FUZZ_TARGET(softnic) {
  Target().run(Input(data, size));
  return 0;
}

}  // namespace pacecar::softnic_fuzz
