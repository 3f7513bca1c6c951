// The two ends of a one-way stream of messages over one connection. Both are polled. Both count
// messages since the connection was made, and continue up to a limit, which starts at 0 and rises.
//
// If more messages are in flight than a connection has requests, a receive request has a group of
// up to kMaxReceiveBuffers messages, and the tag is the index in the group. So every limit but the
// last one must be a multiple of group_size().
//
// Thread rule: one thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "bench/perf/message_buffer.h"
#include "transport/api/pacecar.hpp"

namespace pacecar::perf {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// Messages per receive request, the same at both ends for the same depth.
uint32_t group_size(uint32_t rx_depth);

class SendStream {
 public:
  SendStream(std::unique_ptr<SendConnection> connection, MessageBuffer buffer, uint32_t tx_depth,
             uint32_t rx_depth, bool validate);

  // Starts sends up to the limit, and tests those in flight. Returns how many have completed.
  Result<uint64_t> poll();
  void set_limit(uint64_t limit) { limit_ = limit; }
  // How many sends are started together, at most the depth; the last ones may be fewer.
  void set_post_list(uint32_t sends) { post_list_ = std::min<uint64_t>(sends, requests_.size()); }
  // Lowers the limit as far as the started sends allow, and returns it.
  uint64_t stop();
  // stop() would lower the limit.
  bool may_stop() const { return whole_groups() < limit_; }
  uint64_t finished() const { return finished_; }
  bool at_limit() const { return finished_ == limit_; }
  FlowView flow() const { return connection_->flow(); }

 private:
  Result<bool> start_one();
  uint64_t whole_groups() const { return (started_ + group_ - 1) / group_ * group_; }

  MessageBuffer buffer_;
  std::unique_ptr<SendConnection> connection_;
  std::vector<Request*> requests_;  // by message number modulo depth
  uint32_t group_;
  bool validate_;
  uint64_t post_list_ = 1;
  uint64_t limit_ = 0;
  uint64_t started_ = 0;
  uint64_t finished_ = 0;
};

class ReceiveStream {
 public:
  // `echo`: the next message comes only after this one has been answered.
  ReceiveStream(std::unique_ptr<ReceiveConnection> connection, MessageBuffer buffer,
                uint32_t rx_depth, bool validate, bool echo);

  // As SendStream::poll. Errors also: kPeer (a message with another size, or with wrong bytes).
  Result<uint64_t> poll();
  void set_limit(uint64_t limit) { limit_ = limit; }
  uint64_t finished() const { return finished_; }
  bool at_limit() const { return finished_ == limit_; }

 private:
  struct Posted {
    Request* request = nullptr;
    uint32_t messages = 0;
  };
  Result<bool> post_group();
  Result<void> check(const TestResult& result, uint32_t messages);
  std::span<uint8_t> slot(uint64_t number) const { return buffer_.slot(number % slots_); }

  MessageBuffer buffer_;
  std::unique_ptr<ReceiveConnection> connection_;
  uint32_t group_;
  uint32_t slots_;
  bool validate_;
  bool echo_;
  std::vector<Posted> posted_requests_;  // by request number modulo their bound
  uint64_t limit_ = 0;
  uint64_t requests_started_ = 0;
  uint64_t requests_finished_ = 0;
  uint64_t posted_ = 0;
  uint64_t finished_ = 0;
};

// Slots of a ReceiveStream's buffer.
uint32_t receive_slots(uint32_t rx_depth);

}  // namespace pacecar::perf
