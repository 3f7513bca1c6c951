// ShareMember: one NIC of one process among all that use the same NIC: its slot in their table, and
// its HostLink of each direction.
//
// A simulated host makes one table, and a member of it for each of its processes:
//
//   ShareTable table{};
//   ShareProcess process(number);  // not 0, and no two of a host the same
//   ShareMember member(table, process, "rank 0", line_rate);
//   config.outgoing = &member.outgoing();
//   config.incoming = &member.incoming();
//
// Pure; one thread for each member.
#pragma once

#include "transport/share/share_link.h"

namespace pacecar {

template <typename Word>
class BasicShareMember {
 public:
  // Table and process outlive it. A slot is taken with the first claim at the latest.
  BasicShareMember(BasicShareTable<Word>& table, const ShareProcess& process, std::string_view name,
                   Rate capacity)
      : seat_(table, process, name, capacity),
        outgoing_(seat_, LinkDirection::kOutgoing),
        incoming_(seat_, LinkDirection::kIncoming) {}

  // False: all slots are in use.
  bool join(Instant now) { return seat_.take(now); }

  BasicShareLink<Word>& outgoing() { return outgoing_; }
  BasicShareLink<Word>& incoming() { return incoming_; }

 private:
  BasicShareSeat<Word> seat_;
  BasicShareLink<Word> outgoing_;
  BasicShareLink<Word> incoming_;
};

using ShareMember = BasicShareMember<std::atomic<uint64_t>>;

}  // namespace pacecar
