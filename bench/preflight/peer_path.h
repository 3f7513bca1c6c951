// The largest packets that reach a peer. Probes are UDP datagrams that must not be fragmented, sent
// to one port of the peer. README.md says what each answer, and silence, proves. Sizes are those of
// IP packets, in bytes. Blocks for seconds; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "bench/preflight/facts.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar::preflight {

struct ProbePlan {
  uint16_t port = 0;
  uint32_t tries = 3;
  // For the answer to one try. After some refusals in a row Linux refuses one datagram a second
  // only (net.ipv4.icmp_ratelimit); with a shorter wait the others would look lost.
  Duration wait = Duration::from_ms(1100);
};

PeerPath probe_peer(const std::string& host, const ProbePlan& plan);

// Bounds the answers per second, as a probe's source may be forged and must not be flooded. One
// peer sends at most 15 probes.
class AnswerBudget {
 public:
  static constexpr uint32_t kPerSecond = 100;
  bool take(Instant now);

 private:
  Instant second_;  // when it began
  uint32_t taken_ = 0;
};

// Answers probes. One socket for both families, bound at once; it is closed with the object.
class ProbeListener {
 public:
  // Listens at this address or name of this host; empty: at all. Port 0 takes any free port.
  // Errors: kNotFound, kUnavailable, kPermission, kSystem.
  static Result<ProbeListener> open(const std::string& host, uint16_t port);

  uint16_t port() const { return port_; }
  // Waits for one datagram, and answers it if it is a probe and the budget allows. False: the
  // socket has failed.
  bool answer_one();

 private:
  ProbeListener(FileDescriptor fd, uint16_t port) : fd_(std::move(fd)), port_(port) {}

  FileDescriptor fd_;
  uint16_t port_;
  AnswerBudget budget_;
};

}  // namespace pacecar::preflight
