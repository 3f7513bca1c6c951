// A port of the bridge between the victims: captures the frames of the victim behind the port, and
// sends frames to this victim. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tests/attack/frame.h"
#include "transport/base/result.h"

namespace pacecar::attack {

class Tap {
 public:
  static Result<Tap> open(const std::string& interface);
  Tap(Tap&& other) noexcept;
  ~Tap();

  // Without capturing, new frames are dropped, at no cost for the victims; frames captured before
  // stay.
  void set_capturing(bool wanted) const;
  // Receives one frame, truncated to `room`; returns 0 when none waits.
  size_t receive(std::span<uint8_t> room) const;
  // Returns how many frames the network took; the others are lost.
  size_t send(std::span<const Bytes> frames) const;

 private:
  explicit Tap(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace pacecar::attack
