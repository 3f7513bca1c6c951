// What the layer above asks of the ends of connections, whichever their direction: whether they
// make progress, and the state of lanes. A lane is a connection that carries a part of a bonded
// one; the layer above coordinates lanes by notes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "transport/message/control_words.h"
#include "transport/message/flow_status.h"
#include "transport/message/message_request.h"
#include "transport/message/messenger_config.h"

namespace pacecar {

class PeerLine;

enum class Direction : uint8_t { kSend, kReceive };

struct LaneSight {
  uint32_t writes = 0;  // at the NIC: of data, or of CTS slots
  uint64_t life = 0;    // changes with every acknowledged write
  bool closed = false;  // by the peer
  MessageFailure failure = MessageFailure::kNone;
};

// The ends of one direction. Their connections are open, unless a function says otherwise.
class Lanes {
 public:
  virtual ~Lanes() = default;
  // nullopt while requests make progress, or none is pending.
  virtual std::optional<Stall> stall(ConnectionId connection) const = 0;
  // What broke its flow; empty: only the failure of its requests is known. It need not be open.
  virtual std::string fault(ConnectionId connection) const = 0;
  virtual std::string peer_address(ConnectionId connection) const = 0;  // of its NIC; may be empty
  // The line over which the connection was made: its end shows that the peer has ended.
  virtual void add_line(ConnectionId connection, std::shared_ptr<PeerLine> line) = 0;

  virtual LaneSight lane(ConnectionId connection) const = 0;
  // The peer's note; its address is valid as long as the connection. Any thread may read it.
  virtual const NoteWords& peer_note(ConnectionId connection) const = 0;
  // To the peer; the newest note counts. False: no room, try again later. A note to the receiver
  // has the number of writes that have arrived, whose completions may not be polled yet.
  virtual bool write_note(ConnectionId connection, LaneNote note) = 0;
};

}  // namespace pacecar
