// A port of the network between the victims: hears what the victim behind it sends, and puts frames
// on the wire to it. One thread.
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

  // While deaf nothing is heard, at no cost for the victims; what was heard before stays.
  void listen(bool wanted) const;
  // One frame, cut off where it is longer than `room`; 0 bytes when nothing waits.
  size_t hear(std::span<uint8_t> room) const;
  // Returns how many the network took; others are lost.
  size_t send(std::span<const Bytes> frames) const;

 private:
  explicit Tap(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace pacecar::attack
