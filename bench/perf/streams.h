// The streams of one test at one end, and their set-up with the peer.
#pragma once

#include <vector>

#include "bench/perf/control_channel.h"
#include "bench/perf/stream.h"
#include "bench/perf/test_parameters.h"

namespace pacecar::perf {

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
};

// Both sides call it at the same time, each with the other's directions reversed.
Result<Streams> make_streams(Context& context, ControlChannel& channel, const StreamPlan& plan,
                             const TestParameters& parameters);

}  // namespace pacecar::perf
