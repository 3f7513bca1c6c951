// A TCP connection between the two programs of a test. Both make the same exchanges in the same
// order. A waiting exchange calls `idle` again and again, so that the caller can poll its NIC.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "transport/base/result.h"

namespace pacecar::test {

class Channel {
 public:
  // Waits for one connection on `port`.
  static Result<Channel> listen(uint16_t port);
  // Tries again for some seconds: the other side may begin later.
  static Result<Channel> connect(const std::string& host, uint16_t port);

  Channel(Channel&& other) noexcept;
  Channel& operator=(Channel&&) = delete;
  ~Channel();

  // Sends `mine` and fills `theirs` with as many bytes of the other side. Error: kPeer when it is
  // gone or silent for too long.
  Result<void> exchange(std::span<const uint8_t> mine, std::span<uint8_t> theirs,
                        const std::function<void()>& idle);

 private:
  explicit Channel(int fd) : fd_(fd) {}

  int fd_;
};

}  // namespace pacecar::test
