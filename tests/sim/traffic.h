// Random traffic over a simulated network, and the checks that every run must pass: each message
// arrives exactly once and byte for byte; a buffer whose receive has completed is never written
// again; everything completes once the faults stop.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/sim_host.h"

namespace pacecar::test {

struct TrafficResult {
  std::string failure;  // empty: passed
  uint64_t trace_hash = 0;
  uint64_t messages = 0;
  uint64_t retransmissions = 0;
  Duration virtual_time;
};

class Traffic {
 public:
  explicit Traffic(uint64_t seed);
  TrafficResult run();

 private:
  // One receive request: buffers with different tags, filled by as many sends in any order.
  struct Group {
    struct Message {
      std::vector<uint8_t> sent;
      std::vector<uint8_t> received;  // the posted buffer, perhaps larger
      int32_t tag = 0;
    };
    std::vector<Message> messages;
    std::vector<size_t> send_order;
  };
  struct Stream {
    size_t from = 0;
    size_t to = 0;
    ConnectionPair ends;
    std::vector<Group> groups;
    MemoryRegion send_region;
    MemoryRegion receive_region;
    std::deque<MessageRequest> send_requests;
    std::deque<MessageRequest> receive_requests;
    size_t groups_posted = 0;
    size_t groups_received = 0;
    size_t sends_posted = 0;
    size_t sends_done = 0;
    size_t sends = 0;
  };

  void make_hosts();
  void make_stream(size_t from, size_t to);
  void make_faults();
  Bytes random_size();
  void drive(Stream& stream);
  void post_sends(Stream& stream);
  void check_received(Stream& stream, Group& group, const MessageRequest& request);
  bool all_done();
  void check_canaries();
  void complain(std::string what);

  uint64_t seed_;
  Prng random_;
  std::unique_ptr<SimStar> network_;
  std::vector<std::unique_ptr<SimHost>> hosts_;
  std::deque<Stream> streams_;
  TrafficResult result_;
};

}  // namespace pacecar::test
