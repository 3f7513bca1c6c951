// Where the frames of one peer come from: messages of frames, in the order of sending.
#pragma once

#include <cstdint>
#include <span>

#include "transport/base/result.h"

namespace pacecar::fabric {

class FrameSource {
 public:
  FrameSource() = default;
  virtual ~FrameSource() = default;
  FrameSource(const FrameSource&) = delete;
  FrameSource& operator=(const FrameSource&) = delete;

  // The next message; it is valid until done() is called. Empty: none yet. Errors: kPeer; the next
  // call returns the same.
  virtual Result<std::span<const uint8_t>> next() = 0;
  // Errors: as irecv.
  virtual Result<void> done() = 0;
  // Polls the NIC. False: it was not polled, because a message is ready, or there is none.
  virtual bool turn() { return false; }
  // The caller is going to sleep: what arrives wakes it. False: a message is there.
  virtual bool rest() { return true; }
};

}  // namespace pacecar::fabric
