// The requester and the responder of a standard RC queue pair, each alone: the test plays the peer.
// A packet's place is its PSN minus the first PSN. Virtual time; one thread.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/support/prng_source.h"
#include "transport/base/check.h"
#include "transport/base/seq.h"
#include "transport/softnic/rc/rc_requester.h"
#include "transport/softnic/rc/rc_responder.h"

namespace pacecar::test {

// Near the wrap of the PSN.
inline constexpr uint64_t kFirstOfHalf = (uint64_t{1} << 25) - 3;
inline constexpr Bytes kHalfMtu = 1024;

// Registered memory that peers address by its own addresses.
class HalfMemory {
 public:
  MemoryTable& table() { return table_; }
  MemoryRegion add(std::vector<uint8_t>& bytes, Access access) {
    return table_.add(bytes.data(), bytes.size(), access).value();
  }

 private:
  Prng prng_{1};
  MemoryTable table_{16, random_source(prng_), false};
};

struct RequesterHalf {
  static RcRequester::Config usual() {
    return {.peer_queue_pair = 0x42,
            .first_psn = kFirstOfHalf,
            .window_packets = 32,
            .work_requests = 16,
            .mtu = kHalfMtu,
            .loss = {.initial_timeout = Duration::from_ms(8),
                     .min_probe = Duration::from_us(200),
                     .min_timeout = Duration::from_ms(2),
                     .max_timeout = Duration::from_ms(20)},
            .sending = {.read_depth = 4,
                        .silence_limit = Duration::from_s(1),
                        .not_ready_limit = Duration::from_s(1)}};
  }
  // `receive_bytes`: the NIC's limit; a quarter of it may be read at a time.
  explicit RequesterHalf(const RcRequester::Config& config = usual(), Bytes receive_bytes = 0)
      : reads(receive_bytes), requester(config, reads) {
    region = memory.add(bytes, Access::kLocalWrite);
  }

  WorkRequest write(Bytes length, uint64_t id = 0, Opcode opcode = Opcode::kWrite) const {
    return {.id = id,
            .local = bytes.data(),
            .remote = 0x10000,
            .length = length,
            .local_key = region.key,
            .remote_key = 77,
            .opcode = opcode};
  }
  WorkRequest read(Bytes length, uint64_t id = 0) const { return write(length, id, Opcode::kRead); }
  void post(const WorkRequest& request) { PACECAR_CHECK(requester.post({&request, 1}) == 1); }
  // All packets that may be sent now.
  std::vector<RcRequester::Outgoing> send(bool ask = false) {
    std::vector<RcRequester::Outgoing> sent;
    RcRequester::Outgoing next;
    while (requester.next_packet(now, ask, &next)) sent.push_back(next);
    return sent;
  }
  static uint32_t place(const RcRequester::Outgoing& sent) {
    return static_cast<uint32_t>((sent.packet.psn - kFirstOfHalf) & kPsnMask);
  }
  std::vector<uint32_t> send_places(bool ask = false) {
    std::vector<uint32_t> places;
    for (const auto& sent : send(ask)) places.push_back(place(sent));
    return places;
  }
  static uint32_t psn(uint32_t place) {
    return static_cast<uint32_t>((kFirstOfHalf + place) & kPsnMask);
  }
  SendProgress answer(uint32_t place, uint8_t syndrome = roce::kAckUnlimited) {
    return requester.on_ack({.syndrome = syndrome, .psn = psn(place)}, now, now);
  }
  SendProgress respond(uint32_t place, Bytes size = kHalfMtu,
                       roce::Opcode opcode = roce::Opcode::kReadMiddle) {
    roce::Packet response{.opcode = opcode, .psn = psn(place)};
    response.payload = std::span(payload).first(size);
    return requester.on_read_response(response, memory.table(), now);
  }
  // Advances the time to the deadline.
  SendTimeout time_out(SendProgress* progress) {
    now = requester.deadline();
    return requester.on_timeout(now, progress);
  }
  SendTimeout time_out() {
    SendProgress progress;
    return time_out(&progress);
  }
  // The completed work requests, in order.
  std::vector<std::pair<uint64_t, CompletionStatus>> completed() {
    std::vector<std::pair<uint64_t, CompletionStatus>> done;
    WorkRequest request;
    CompletionStatus status{};
    while (requester.pop_completed(&request, &status)) done.emplace_back(request.id, status);
    return done;
  }
  void pass(Duration time) { now = now + time; }

  Instant now = Instant::from_ns(1'000'000'000);
  HalfMemory memory;
  std::vector<uint8_t> bytes = std::vector<uint8_t>(64 * kHalfMtu, 1);
  std::vector<uint8_t> payload = std::vector<uint8_t>(2 * kHalfMtu, 0x77);
  MemoryRegion region;
  ReadWindow reads;
  RcRequester requester;
};

struct ResponderHalf {
  static RcResponder::Config usual() {
    return {.queue_pair = 5,
            .peer_queue_pair = 0x42,
            .first_psn = kFirstOfHalf,
            .read_depth = 2,
            .mtu = kHalfMtu};
  }
  explicit ResponderHalf(const RcResponder::Config& config = usual(), size_t receive_requests = 4)
      : receives(receive_requests), responder(config, receives) {
    region = memory.add(bytes, Access::kRemoteAll | Access::kRemoteAtomic);
  }

  using Outcome = RcResponder::Outcome;
  static roce::Packet packet(roce::Opcode opcode, uint32_t place) {
    return {.opcode = opcode, .psn = RequesterHalf::psn(place)};
  }
  // A request with an address, for `length` bytes.
  roce::Packet at(roce::Opcode opcode, uint32_t place, uint32_t length, size_t offset = 0) const {
    roce::Packet request = packet(opcode, place);
    request.address = region.remote_address + offset;
    request.key = region.key;
    request.length = length;
    return request;
  }
  Outcome take(roce::Packet request, Bytes size = 0) {
    request.payload = std::span(payload).first(size);
    return responder.on_request(request, memory.table());
  }
  Outcome write(uint32_t place, uint32_t length = 8) {
    return take(at(roce::Opcode::kWriteOnly, place, length), length);
  }
  Outcome read(uint32_t place, uint32_t length) {
    return take(at(roce::Opcode::kReadRequest, place, length));
  }
  Outcome send(uint32_t place, Bytes size, roce::Opcode opcode = roce::Opcode::kSendOnly) {
    return take(packet(opcode, place), size);
  }
  void post_receive(uint64_t id, Bytes length = 4 * kHalfMtu) {
    PACECAR_CHECK(receives.push(ReceiveRequest{
        .id = id, .local = bytes.data(), .length = length, .local_key = region.key}));
  }
  std::vector<roce::Packet> answers() {
    std::vector<roce::Packet> all;
    roce::Packet next;
    while (responder.next_answer(memory.table(), &next)) all.push_back(next);
    return all;
  }
  static uint32_t place(const roce::Packet& answer) {
    return static_cast<uint32_t>((answer.psn - kFirstOfHalf) & kPsnMask);
  }

  HalfMemory memory;
  std::vector<uint8_t> bytes = std::vector<uint8_t>(64 * kHalfMtu, 1);
  std::vector<uint8_t> payload = std::vector<uint8_t>(4 * kHalfMtu, 0x77);
  MemoryRegion region;
  FixedQueue<ReceiveRequest> receives;
  RcResponder responder;
};

}  // namespace pacecar::test
