// WriteFollower: follows the newest long write to predict the place of the next payload: behind
// that of the newest packet. It predicts only after more than a burst of packets in sequence,
// because then the next burst will probably be in sequence, too.
//
// Pure. Thread rule: one owner.
#pragma once

#include <cstdint>

#include "transport/base/seq.h"
#include "transport/base/units.h"
#include "transport/wire/extended.h"

namespace pacecar {

class WriteFollower {
 public:
  // The write to which the newest packet belongs.
  struct Write {
    uint32_t queue_pair = 0;
    uint32_t key = 0;
    uint32_t msn = 0;
    uint32_t psn = 0;      // of that packet
    uint64_t address = 0;  // behind its payload
    Bytes payload = 0;     // of that packet
    Instant arrival;
  };

  // `packets`: of a burst. After `patience` without a packet nothing is predicted, because the
  // memory of the write may have been reused.
  WriteFollower(uint32_t packets, Duration patience) : packets_(packets), patience_(patience) {}

  void on_packet(const wire::DataHeader& header, Bytes payload, Instant arrival) {
    const bool follows = header.key == write_.key && header.address == write_.address;
    // The next write begins elsewhere; its later packets may still be predicted.
    const bool next_write =
        header.destination_qp == write_.queue_pair && header.msn == ((write_.msn + 1) & kPsnMask);
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
