// Follows the newest long write, to predict where the next packet's payload goes: behind the last
// one's, once so many have come one after another that the next burst will, too.
//
// Pure; one thread.
#pragma once

#include <cstdint>

#include "transport/base/seq.h"
#include "transport/base/units.h"
#include "transport/wire/extended.h"

namespace pacecar {

class WriteFollower {
 public:
  // As the newest packet named it.
  struct Write {
    uint32_t queue_pair = 0;
    uint32_t key = 0;
    uint32_t msn = 0;
    uint32_t psn = 0;      // of that packet
    uint64_t address = 0;  // behind its payload
    Bytes payload = 0;     // of that packet
    Instant arrival;
  };

  // `packets`: of a burst. What has been quiet for `patience` is no longer predicted: its memory
  // may by now be used for something else.
  WriteFollower(uint32_t packets, Duration patience) : packets_(packets), patience_(patience) {}

  void on_packet(const wire::DataHeader& header, Bytes payload, Instant arrival) {
    const bool follows = header.key == write_.key && header.address == write_.address;
    // It begins elsewhere, which says nothing against the packets behind.
    const bool next_write = header.destination_qp == write_.queue_pair &&
                            header.msn == ((write_.msn + 1) & kPsnMask);
    in_a_row_ = follows || next_write ? in_a_row_ + 1 : 0;
    write_ = {.queue_pair = header.destination_qp,
              .key = header.key,
              .msn = header.msn,
              .psn = header.psn,
              .address = header.address + payload,
              .payload = payload,
              .arrival = arrival};
  }

  const Write* predicted(Instant now) const {
    return in_a_row_ > packets_ && now - write_.arrival <= patience_ ? &write_ : nullptr;
  }

 private:
  Write write_;
  uint32_t in_a_row_ = 0;
  const uint32_t packets_;
  const Duration patience_;
};

}  // namespace pacecar
