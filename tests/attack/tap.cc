#include "tests/attack/tap.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace pacecar::attack {
namespace {

constexpr size_t kBatch = 64;
constexpr int kOn = 1;
constexpr int kBufferBytes = 4 << 20;

bool set(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

}  // namespace

Result<Tap> Tap::open(const std::string& interface) {
  Tap tap(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (tap.fd_ < 0) {
    return fail(ErrorCode::kSystem,
                fmt::format("no packet socket ({}): run as root", std::strerror(errno)));
  }
  tap.set_capturing(false);
  sockaddr_ll at{};
  at.sll_family = AF_PACKET;
  at.sll_protocol = htons(ETH_P_ALL);
  at.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
  const bool good = at.sll_ifindex > 0 && set(tap.fd_, SOL_PACKET, PACKET_IGNORE_OUTGOING, kOn) &&
                    set(tap.fd_, SOL_PACKET, PACKET_QDISC_BYPASS, kOn) &&
                    set(tap.fd_, SOL_SOCKET, SO_RCVBUFFORCE, kBufferBytes) &&
                    bind(tap.fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0;
  if (good) return tap;
  return fail(ErrorCode::kSystem,
              fmt::format("cannot tap the interface '{}' ({}): name one that 'ip link' shows",
                          interface, std::strerror(errno)));
}

Tap::Tap(Tap&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }

Tap::~Tap() {
  if (fd_ >= 0) close(fd_);
}

void Tap::set_capturing(bool wanted) const {
  sock_filter verdict = BPF_STMT(BPF_RET | BPF_K, wanted ? ~0U : 0U);
  const sock_fprog filter{.len = 1, .filter = &verdict};
  setsockopt(fd_, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter);
}

size_t Tap::receive(std::span<uint8_t> room) const {
  const ssize_t size = recv(fd_, room.data(), room.size(), 0);
  return size > 0 ? static_cast<size_t>(size) : 0;
}

size_t Tap::send(std::span<const Bytes> frames) const {
  std::array<iovec, kBatch> parts;
  std::array<mmsghdr, kBatch> messages{};
  size_t taken = 0;
  while (!frames.empty()) {
    const size_t count = std::min(frames.size(), kBatch);
    for (size_t i = 0; i < count; ++i) {
      // sendmmsg takes non-const pointers, and only reads.
      parts[i] = {const_cast<uint8_t*>(frames[i].data()), frames[i].size()};
      messages[i].msg_hdr.msg_iov = &parts[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    const int sent = sendmmsg(fd_, messages.data(), static_cast<unsigned>(count), 0);
    taken += sent > 0 ? static_cast<size_t>(sent) : 0;
    frames = frames.subspan(sent > 0 ? static_cast<size_t>(sent) : 1);
  }
  return taken;
}

}  // namespace pacecar::attack
