// Streams of messages, each over one connection, and all streams of a test at one end: their set-up
// with the peer, polls, limits.
//
// Both ends of a stream are polled. Both count messages since the connection was made, and continue
// up to a limit, which starts at 0 and rises.
//
// If more messages are in flight than a connection has requests, a receive request has a group of
// up to kMaxReceiveBuffers messages, and the tag is the index in the group. So every limit but the
// last one must be a multiple of group_size().
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "bench/perf/control_channel.h"
#include "bench/perf/message_buffer.h"
#include "bench/perf/test_parameters.h"
#include "transport/api/pacecar.hpp"

namespace pacecar::perf {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// Messages per receive request, the same at both ends for the same depth.
uint32_t group_size(uint32_t rx_depth);
// Slots of a ReceiveStream's buffer.
uint32_t receive_slots(uint32_t rx_depth);

// What both directions have.
class Stream {
 public:
  // Messages since the connection was made.
  void set_limit(uint64_t limit) { limit_ = limit; }
  uint64_t finished() const { return finished_; }
  bool at_limit() const { return finished_ == limit_; }

 protected:
  Stream(MessageBuffer buffer, const TestParameters& parameters)
      : buffer_(std::move(buffer)),
        group_(group_size(parameters.rx_depth)),
        validate_(parameters.validate) {}

  MessageBuffer buffer_;
  uint32_t group_;
  bool validate_;
  uint64_t limit_ = 0;
  uint64_t finished_ = 0;
};

class SendStream : public Stream {
 public:
  SendStream(std::unique_ptr<SendConnection> connection, MessageBuffer buffer,
             const TestParameters& parameters);

  // Starts sends up to the limit, and tests the sends in flight. Returns how many have completed.
  Result<uint64_t> poll();
  // Lowers the limit as far as the started sends allow, and returns it.
  uint64_t stop();
  // stop() would lower the limit.
  bool may_stop() const { return whole_groups() < limit_; }
  FlowView flow() const { return connection_->flow(); }

 private:
  Result<bool> start_one();
  uint64_t whole_groups() const { return (started_ + group_ - 1) / group_ * group_; }

  std::unique_ptr<SendConnection> connection_;
  std::vector<Request*> requests_;  // by message number modulo depth
  uint64_t post_list_;              // sends that are started together; the last ones may be fewer
  uint64_t started_ = 0;
};

class ReceiveStream : public Stream {
 public:
  // `echo`: the next message comes only after this one has been answered.
  ReceiveStream(std::unique_ptr<ReceiveConnection> connection, MessageBuffer buffer,
                const TestParameters& parameters, bool echo);

  // As SendStream::poll. Errors also: kPeer (a message with another size, or with wrong bytes).
  Result<uint64_t> poll();

 private:
  struct Posted {
    Request* request = nullptr;
    uint32_t messages = 0;
  };
  Result<bool> post_group();
  Result<void> check(const TestResult& result, uint32_t messages);
  std::span<uint8_t> slot(uint64_t number) const { return buffer_.slot(number % slots_); }

  std::unique_ptr<ReceiveConnection> connection_;
  uint32_t slots_;
  bool echo_;
  std::vector<Posted> posted_requests_;  // by request number modulo their bound
  uint64_t requests_started_ = 0;
  uint64_t requests_finished_ = 0;
  uint64_t posted_ = 0;
};

struct Streams {
  size_t nic = 0;  // that they use; if each direction has its own, the senders'
  std::vector<SendStream> senders;
  std::vector<ReceiveStream> receivers;

  // Polls all; returns how many messages finished.
  Result<uint64_t> poll();
  // Messages per stream since it was made.
  void set_limit(uint64_t limit);
  bool at_limit() const;
  // Stops all senders as soon as possible; returns how many messages they will have sent in all.
  uint64_t stop();
  // Messages are left that are not started, so stop() would end the phase early.
  bool may_stop() const;
  uint64_t finished() const { return sent() + received(); }
  uint64_t sent() const;
  uint64_t received() const;
};

// The streams that this end makes.
struct StreamPlan {
  uint64_t size = 0;  // bytes per message
  bool send = false;
  bool receive = false;
  bool echo = false;  // each message answers the one before
  const MessagePlace& place;
  Duration connect_limit;
};

// Both sides call it at the same time, each with the other's directions reversed.
Result<Streams> make_streams(Context& context, ControlChannel& channel, const StreamPlan& plan,
                             const TestParameters& parameters);

}  // namespace pacecar::perf
