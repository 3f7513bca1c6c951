#include "transport/io/udp/receive_ring.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace pacecar {
namespace {

// The value of a control message that carries a byte or an int.
int control_value(const cmsghdr& control) {
  int value = 0;  // IP_TOS is one byte, the others are an int
  if (control.cmsg_len == CMSG_LEN(sizeof(uint8_t))) return *CMSG_DATA(&control);
  std::memcpy(&value, CMSG_DATA(&control), sizeof(value));
  return value;
}

int64_t ns_of(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

// The kernel stamps arrivals by the real-time clock, which may be set while a packet waits; so
// impossible values are clamped.
Duration waited_since(const cmsghdr& control, int64_t fetched_ns) {
  constexpr int64_t kLongestNs = 1'000'000'000;
  timespec arrival;
  std::memcpy(&arrival, CMSG_DATA(&control), sizeof(arrival));
  return Duration::from_ns(std::clamp<int64_t>(fetched_ns - ns_of(arrival), 0, kLongestNs));
}

}  // namespace

ReceiveRing::ReceiveRing()
    : slab_(static_cast<uint8_t*>(::operator new[](kBuffers* kStride, kAlignment))) {
  for (size_t i = 0; i < kBuffers; ++i) {
    iovecs_[i] = {buffer(i), kBufferBytes};
    msghdr& message = messages_[i].msg_hdr;
    message.msg_iov = &iovecs_[i];
    message.msg_iovlen = 1;
    message.msg_name = &names_[i];
    message.msg_control = controls_[i].bytes.data();
    message.msg_namelen = sizeof(SocketAddress);
    message.msg_controllen = sizeof(Control);
  }
}

size_t ReceiveRing::receive(int fd, std::span<RxPacket> packets) {
  if (rest_.empty() && !next_message() && (!fill(fd) || !next_message())) return 0;
  size_t count = 0;
  while (count < packets.size() && (!rest_.empty() || next_message())) {
    const auto datagram = rest_.first(std::min(segment_bytes_, rest_.size()));
    rest_ = rest_.subspan(datagram.size());
    // In place: the copy of a temporary stalls.
    new (&packets[count++]) RxPacket{datagram, &sources_[next_ - 1], ecn_, waited_};
  }
  return count;
}

// As recvmmsg for one message, but cheaper.
int ReceiveRing::receive_one(int fd) {
  const ssize_t size = recvmsg(fd, &messages_[0].msg_hdr, MSG_DONTWAIT);
  if (size < 0) return -1;
  messages_[0].msg_len = static_cast<unsigned>(size);
  return 1;
}

// Reads the next burst with one system call. False if nothing waits.
bool ReceiveRing::fill(int fd) {
  const bool was_full = std::exchange(full_, false);
  for (size_t i = 0; i < filled_; ++i) {  // overwritten by the kernel
    messages_[i].msg_hdr.msg_namelen = sizeof(SocketAddress);
    messages_[i].msg_hdr.msg_controllen = sizeof(Control);
  }
  filled_ = 0;
  next_ = 0;
  const int received = batch_ == 1 ? receive_one(fd)
                                   : recvmmsg(fd, messages_.data(), static_cast<unsigned>(batch_),
                                              MSG_DONTWAIT, nullptr);
  if (received <= 0) return false;
  filled_ = static_cast<size_t>(received);
  timespec fetched;
  clock_gettime(CLOCK_REALTIME, &fetched);
  fetched_ns_ = ns_of(fetched);
  size_t largest = 1;
  for (size_t i = 0; i < filled_; ++i) largest = std::max<size_t>(largest, messages_[i].msg_len);
  // Reading one message is cheapest; after two full bursts in a row more messages may be waiting.
  const size_t most = std::clamp<size_t>(kHotBytes / largest, 1, kBuffers);
  full_ = filled_ == batch_;
  batch_ = full_ && was_full ? std::min(batch_ * 2, most) : filled_;
  return true;
}

// Opens the next readable message of the burst. False if none is left.
bool ReceiveRing::next_message() {
  while (next_ < filled_) {
    if (open(messages_[next_++])) return true;
  }
  return false;
}

// False for a message that was cut off or is empty.
bool ReceiveRing::open(mmsghdr& message) {
  msghdr& header = message.msg_hdr;
  if ((header.msg_flags & MSG_TRUNC) != 0 || message.msg_len == 0) return false;
  rest_ = {static_cast<const uint8_t*>(header.msg_iov->iov_base), message.msg_len};
  segment_bytes_ = rest_.size();
  ecn_ = Ecn::kNotCapable;
  waited_ = Duration();
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
      waited_ = waited_since(*c, fetched_ns_);
      continue;
    }
    const int value = control_value(*c);
    if (c->cmsg_level == SOL_UDP && c->cmsg_type == UDP_GRO) {
      if (value > 0) segment_bytes_ = static_cast<size_t>(value);
    } else if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
               (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS)) {
      ecn_ = static_cast<Ecn>(value & 3);
    }
  }
  sources_[next_ - 1] = from_sockaddr(*static_cast<const SocketAddress*>(header.msg_name));
  return true;
}

}  // namespace pacecar
