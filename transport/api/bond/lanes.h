// The lanes of a bonded connection, each a messenger's connection between two NICs, and the notes
// by which its ends agree how to continue without a lane.
//   sender                                   receiver
//     complaint: these lanes are lost   ->
//                                       <-   pause: post no more writes; these lanes are lost
//     paused: nothing is in flight, and
//       this many writes are acknowledged
//       on the lane                     ->
//                                            waits for these, takes nothing more from the lost
//                                            lanes, checks which buffers are filled, posts the
//                                            others again
//                                       <-   resume: over these lanes, from this slot on; of the
//                                            earlier slots these are done
//     sends the other messages again; resumed ->
// A pause may begin without a complaint. Every note goes over every living lane; the newest counts.
// Complaint, pause and paused name the lost lanes, resume the remaining ones. BondKeeper's thread
// does all of this. Thread rule: as the connection's own, whose lock is held.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "transport/api/connections.h"
#include "transport/api/lane_list.h"
#include "transport/base/units.h"
#include "transport/message/control_words.h"

namespace pacecar {

struct BondLane {
  Attachment at;
  size_t member = 0;  // index of its NIC in the bond, for memory keys
  bool alive = true;
};

enum class NoteKind : uint8_t { kNone, kComplaint, kPause, kPaused, kResume, kResumed };

using LaneMask = uint8_t;  // bit per lane

constexpr LaneMask bit_of(size_t lane) { return static_cast<LaneMask>(1U << lane); }
LaneMask alive_lanes(std::span<const BondLane> lanes);
inline LaneMask lost_lanes(std::span<const BondLane> lanes) {
  return static_cast<LaneMask>(~alive_lanes(lanes));
}

// Whether the receiver has this slot's message. The note has the last kCtsSlots; older are done.
bool slot_done(const LaneNote& resume, uint64_t slot);

// Detects a lane without acknowledgements for `limit` although the peer was alive on another lane
// all that time. A peer that was silent on all lanes for half of `limit` has paused, and the time
// starts again. Time in which this process was stopped does not count.
class LaneWatch {
 public:
  explicit LaneWatch(Duration limit) : limit_(limit) {}

  struct Sight {
    bool waits = false;  // some writes are not acknowledged
    uint64_t life = 0;   // changes with every acknowledgement
  };
  // Takes the newest state of one lane. True: the lane is lost.
  bool update(size_t lane, const Sight& sight, Instant now);
  // The peer is alive: a note has arrived. Lanes that still wait are suspect.
  void on_peer_alive(Instant now);
  // Whether to probe the peer: a lane is silent, and no lane shows that the peer is alive.
  bool should_probe(Instant now);

 private:
  void skip_own_pause(Instant now);

  struct Seen {
    uint64_t life = 0;
    Instant until;  // of the last acknowledgement, or when nothing was outstanding
    bool waits = false;
    Instant suspect = Instant::never();  // when the peer was first seen alive while the lane waited
  };
  Duration limit_;
  std::array<Seen, kMaxLanes> seen_{};
  Instant probed_;     // when should_probe() was last true
  Instant alive_;      // when the peer last acknowledged something or sent a note
  Instant looked_at_;  // when update() was last called
};

}  // namespace pacecar
