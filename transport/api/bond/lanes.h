// Common to both ends of a bonded connection: its lanes, each a messenger's connection between two
// NICs, and the notes by which the ends agree how to continue without a lane.
//
//   sender                                   receiver
//     complaint: these lanes are lost   ->
//                                       <-   pause: post no more writes; these lanes are lost
//     paused: nothing is under way, and
//       so much has arrived on the lane ->
//                                            waits for it, takes nothing more from the lost lanes,
//                                            sees which buffers are filled, posts the others again
//                                       <-   resume: over these lanes, from this slot on; of the
//                                            earlier ones these are done
//     does again what is not done; resumed ->
//
// A pause may begin without a complaint. Every note goes over every living lane; the newest counts.
// Complaint, pause and paused name the lost lanes, resume the remaining ones. BondKeeper's thread
// does all of this. Thread rule: as the connection's own, whose lock is held.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/api/connections.h"
#include "transport/api/lane_list.h"
#include "transport/base/units.h"
#include "transport/message/control_words.h"

namespace pacecar {

struct BondLane {
  Attachment at;
  size_t member = 0;  // index in the bonded NIC, for its memory keys
  bool alive = true;
};

enum class NoteKind : uint8_t { kNone, kComplaint, kPause, kPaused, kResume, kResumed };

using LaneMask = uint8_t;  // bit per lane

constexpr LaneMask bit_of(size_t lane) { return static_cast<LaneMask>(1U << lane); }
LaneMask alive_lanes(std::span<const BondLane> lanes);
inline LaneMask lost_lanes(std::span<const BondLane> lanes) {
  return static_cast<LaneMask>(~alive_lanes(lanes));
}

// Whether the receiver has all of the message that filled this slot. The last kCtsSlots slots are
// remembered; older ones are done.
bool slot_done(const LaneNote& resume, uint64_t slot);

// Our newest note to the peer, and the peer's newest one.
class LaneNotes {
 public:
  // Where the peer's notes arrive, and how ours are written.
  using Inbox = const NoteWords& (Messenger::*)(ConnectionId) const;
  using Write = bool (Messenger::*)(ConnectionId, LaneNote);
  LaneNotes(std::span<const BondLane> lanes, Inbox inbox, Write write);

  void send(LaneNote note);
  // Sends it once more: its acknowledgement shows whether the peer is alive.
  void repeat() { send(note_); }
  // Writes the newest note on every lane that has not sent it.
  void deliver(std::span<const BondLane> lanes);
  // Whether each living lane has sent the newest note.
  bool delivered(std::span<const BondLane> lanes) const;
  // A note of the peer's that is newer than all before it.
  std::optional<LaneNote> receive(std::span<const BondLane> lanes);
  // The peer's last note on one lane.
  std::optional<LaneNote> last(size_t lane) const { return read_note(*inboxes_[lane]); }

 private:
  std::vector<const NoteWords*> inboxes_;  // by lane
  const Write write_;
  LaneNote note_;
  std::array<uint64_t, kMaxLanes> delivered_{};
  uint64_t last_received_ = 0;
};

// Detects a lane without acknowledgements for `limit` although the peer was alive on another lane.
// Time in which this process did not look does not count: it was stopped, and saw nothing.
class LaneWatch {
 public:
  explicit LaneWatch(Duration limit) : limit_(limit) {}

  struct Sight {
    bool waits = false;  // writes are not acknowledged
    uint64_t life = 0;   // changes with every acknowledgement
  };
  // The newest state of one lane; true when the lane is lost.
  bool look(size_t lane, const Sight& sight, Instant now);
  // The peer is alive: a note has arrived. Lanes that waited at their last look are suspect.
  void on_sign(Instant now);
  // Whether the peer must be probed: a lane is silent, and the others have nothing to acknowledge.
  bool doubts(Instant now);

 private:
  void leave_out_own_pause(Instant now);

  struct Seen {
    uint64_t life = 0;
    Instant until;  // last acknowledgement, or nothing was outstanding
    bool waits = false;
    Instant suspect = Instant::never();  // the peer's first sign of life while it waited
  };
  Duration limit_;
  std::array<Seen, kMaxLanes> seen_{};
  Instant doubted_;    // last
  Instant looked_at_;  // last
};

}  // namespace pacecar
