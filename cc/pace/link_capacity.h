// LinkCapacity: what of a receiving link there is to grant, from what arrives on it.
//
//   available = eta * C - X - q / (4 RTT)
//
// eta is 1 for a flow alone, else 0.985. q is the queue at the last hop: line rate times the least
// excess delay of all packets of a round trip; queues elsewhere are on the way of some packets
// only. X is traffic that no grant covers: what of it arrives here is counted; other processes and
// hosts show when a queue stands while our own arrivals fill less than the link. X
// follows what is seen by half per round trip and falls by a quarter, and flows on grants keep half
// of the link against it.
//
// Rates are in bit/s on the wire. Pure; one thread.
#pragma once

#include <algorithm>

#include "cc/pace/constants.h"
#include "transport/base/units.h"

namespace pacecar {

class LinkCapacity {
 public:
  // `packet`: bytes of a full one on the wire.
  LinkCapacity(Rate line_rate, Bytes packet, Duration round_trip, Duration jitter,
               const PaceConstants& constants)
      : line_(static_cast<double>(line_rate.bps())),
        window_(std::max(round_trip, line_rate.time_for(packet * kWindowPackets))),
        usual_(jitter + line_rate.time_for(packet * kUsualPackets)),
        constants_(constants) {}

  // `wire` bytes have arrived; `excess` is how much longer the fastest of them was on its way than
  // the fastest lately.
  // True when a round trip is over and the result may be another.
  bool on_arrival(Instant now, Bytes wire, bool covered, Duration excess);
  // What is there for `flows` flows.
  double available(size_t flows) const;

  double line() const { return line_; }
  double uncovered() const { return uncovered_; }
  Duration queue() const { return queue_; }

 private:
  void close_window(Instant now);

  const double line_;
  static constexpr Bytes kUsualPackets = 4;
  static constexpr Bytes kWindowPackets = 16;  // fewer arrivals may all be late by chance

  const Duration window_;
  const Duration usual_;  // wait at the last hop: flows meet, end hosts are late
  const PaceConstants& constants_;
  double uncovered_ = 0;  // X
  Duration queue_;        // q / C
  // The present round trip.
  Instant started_;
  Bytes arrived_ = 0;
  Bytes foreign_ = 0;
  Instant first_;  // arrival, of `first_bytes_`
  Instant last_;
  Bytes first_bytes_ = 0;
  Duration least_excess_ = Duration::max();
};

}  // namespace pacecar
