// ReceiveRing: receives bursts of datagrams into a fixed set of buffers and splits joined ones
// (UDP_GRO). A burst's memory is valid until the next receive(). Thread rule: one thread at a time.
#pragma once

#include <sys/socket.h>
#include <time.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>

#include "transport/io/packet_io.h"
#include "transport/io/sockaddr.h"
#include "transport/wire/packet.h"

namespace pacecar {

class ReceiveRing {
 public:
  ReceiveRing();
  ReceiveRing(const ReceiveRing&) = delete;  // the message headers point into the object
  ReceiveRing& operator=(const ReceiveRing&) = delete;

  // Returns datagrams of the last burst; reads the socket, once, only if none is left.
  size_t receive(int fd, std::span<RxPacket> packets);

 private:
  static constexpr size_t kBuffers = 32;
  // The most bytes of a burst: half of a small L2 cache (1 MiB), the rest is for the consumer.
  static constexpr size_t kHotBytes = 512 * 1024;
  static constexpr size_t kBufferBytes = 65536;  // more than any joined datagram
  // Buffers begin in different cache sets, so that many short datagrams do not evict one another.
  static constexpr size_t kStride = kBufferBytes + 192;

  struct alignas(cmsghdr) Control {
    // Segment size, traffic class, time of arrival.
    std::array<uint8_t, CMSG_SPACE(sizeof(int)) * 2 + CMSG_SPACE(sizeof(timespec))> bytes;
  };
  struct AlignedDelete {
    void operator()(uint8_t* memory) const { ::operator delete[](memory, kAlignment); }
  };
  static constexpr std::align_val_t kAlignment{4096};

  uint8_t* buffer(size_t i) { return slab_.get() + i * kStride; }
  int receive_one(int fd);
  bool fill(int fd);
  bool next_message();
  bool open(mmsghdr& message);

  std::unique_ptr<uint8_t[], AlignedDelete> slab_;
  std::array<mmsghdr, kBuffers> messages_{};
  std::array<iovec, kBuffers> iovecs_;
  std::array<SocketAddress, kBuffers> names_;
  std::array<Control, kBuffers> controls_;
  std::array<Address, kBuffers> sources_;

  size_t filled_ = 0;  // messages of the last burst
  size_t next_ = 0;    // the first of them not opened yet
  size_t batch_ = 1;   // how many to ask for next time
  bool full_ = false;  // the last burst was full
  // The open message, number next_ - 1.
  std::span<const uint8_t> rest_;
  size_t segment_bytes_ = 0;
  Ecn ecn_ = Ecn::kNotCapable;
  Duration waited_;
  // When the last burst was read, by the real-time clock, as the kernel's time stamps.
  int64_t fetched_ns_ = 0;
};

}  // namespace pacecar
