// Random traffic between hosts, and the checks that every run must pass: each message arrives
// exactly once and byte for byte; a buffer whose receive has completed is never written again;
// everything completes once the faults stop.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/connect_messengers.h"
#include "transport/base/prng.h"
#include "transport/message/messenger.h"

namespace pacecar::test {

// Hosts and the network between them.
class TrafficWorld {
 public:
  virtual ~TrafficWorld() = default;

  virtual size_t hosts() const = 0;
  virtual Messenger& messenger(size_t host) = 0;
  virtual Nic& nic(size_t host) = 0;
  virtual Instant now() const = 0;
  // Runs all hosts until `done` or `limit`; false when the limit came first.
  virtual bool run(Instant limit, const std::function<bool()>& done) = 0;
  virtual void stop_faults() = 0;
  // An error of the network itself; empty: none.
  virtual std::string complaint() const { return {}; }
};

struct TrafficResult {
  std::string failure;  // empty: passed
  uint64_t messages = 0;
};

class Traffic {
 public:
  Traffic(TrafficWorld& world, Prng& random);
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
    std::deque<MessageSend> send_requests;
    std::deque<MessageReceive> receive_requests;
    size_t groups_posted = 0;
    size_t groups_received = 0;
    size_t sends_posted = 0;
    size_t sends_done = 0;
    size_t sends = 0;
  };

  void make_stream(size_t from, size_t to);
  Bytes random_size();
  void drive(Stream& stream);
  void post_sends(Stream& stream);
  void check_received(Stream& stream, Group& group, const MessageRequest& request);
  bool all_done();
  void check_canaries();
  void complain(std::string what);

  TrafficWorld& world_;
  Prng& random_;
  std::deque<Stream> streams_;
  TrafficResult result_;
};

}  // namespace pacecar::test
