// The constants of `pace`: its own, except where a source is named. No experiment tunes them.
#pragma once

#include <array>

#include "cc/constants.h"
#include "transport/base/units.h"

namespace pacecar {

inline constexpr Bytes kWordBytes = 128;  // Bytes of a demand or a grant on the wire.

// The queue that brief messages may make when they begin at once: 1/2 of a bandwidth-delay product.
inline constexpr int64_t kQueueShare = 2;

struct PaceConstants {
  double shared = 0.985;            // eta: share of the link that two or more flows are granted
  double drain_round_trips = 4;     // to drain a queue at the last hop
  double least_share = 0.5;         // of the link, against traffic that no grant covers
  double regrant = 1.0 / 64;        // smaller changes of a rate are not advertised
  double hold_regrant = 0.2;        // smaller changes of an idle flow's hold are not advertised
  double core_start = 15.0 / 16;    // initial c_f, of the line rate
  double core_delay = 0.25;         // T: queueing delay that makes a path bad, in round trips
  double core_loaded = 0.98;        // most of the line rate while paths show queues
  double core_least = 0.5;          // of c_f, after one cut for delays
  double validity_round_trips = 4;  // V, and
  Duration validity = Duration::from_us(50);  // at least
  double window_round_trips = 1.375;          // most in flight, at the flow's rate

  static constexpr auto table() {
    using C = PaceConstants;
    return std::to_array<Constant<C>>({
        {"shared", "1", 0.5, 1, &C::shared, "share of the link that several flows are granted"},
        {"drain_round_trips", "1", 1, 1000, &C::drain_round_trips,
         "to drain a queue at the last hop"},
        {"least_share", "1", 0, 1, &C::least_share,
         "of the link, against traffic that no grant covers"},
        {"regrant", "1", 0, 0.5, &C::regrant, "smaller changes of a rate are not advertised"},
        {"hold_regrant", "1", 0, 1, &C::hold_regrant, "likewise while a flow is idle"},
        {"core_start", "1", 0.01, 1, &C::core_start,
         "of the line rate, before anything is known of the paths"},
        {"core_loaded", "1", 0.5, 1, &C::core_loaded,
         "most of the line rate while paths show queues"},
        {"core_delay", "1", 0.01, 10, &C::core_delay,
         "queueing delay that makes a path bad, in round trips"},
        {"core_least", "1", 0.01, 1, &C::core_least, "what one decrease leaves"},
        {"validity_round_trips", "1", 1, 1000, &C::validity_round_trips, "that a grant holds"},
        {"validity", "us", 1, 1e6, &C::validity, "that a grant holds at least"},
        {"window_round_trips", "1", 1, 100, &C::window_round_trips, "at the flow's rate in flight"},
    });
  }
};

}  // namespace pacecar
