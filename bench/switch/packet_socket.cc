#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "bench/switch/frame_headers.h"
#include "bench/switch/frame_port.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/io/frame.h"
#include "transport/io/udp/interfaces.h"

namespace pacecar {
namespace {

constexpr size_t kBurst = 64;
constexpr int kBufferBytes = 32 << 20;  // of the socket: frames that arrive between two calls
constexpr size_t kMacsBytes = 12;

// What PACKET_VNET_HDR puts before each frame: struct virtio_net_hdr of the virtio specification
// (5.1.6), whose Linux header C++ cannot read. In the byte order of this machine.
struct Offload {
  uint8_t flags;
  uint8_t gso_type;
  uint16_t header_bytes;
  uint16_t gso_bytes;
  uint16_t checksum_start;
  uint16_t checksum_offset;
};
static_assert(sizeof(Offload) == 10);
constexpr uint8_t kNeedsChecksum = 1;  // of flags
constexpr uint8_t kGsoNone = 0;        // of gso_type

struct alignas(cmsghdr) Control {
  std::array<uint8_t, CMSG_SPACE(sizeof(timespec)) + CMSG_SPACE(sizeof(tpacket_auxdata))> bytes;
};

int64_t ns_of(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

class PacketSocket final : public FramePort {
 public:
  PacketSocket(std::string name, Bytes frame_bytes, FileDescriptor socket)
      : name_(std::move(name)),
        frame_bytes_(frame_bytes),
        socket_(std::move(socket)),
        stride_(kVlanTagBytes + frame_bytes),
        memory_(kBurst * stride_) {
    for (size_t i = 0; i < kBurst; ++i) {
      in_pieces_[i] = {iovec{&offloads_[i], sizeof(Offload)},
                       iovec{&memory_[i * stride_ + kVlanTagBytes], frame_bytes}};
      in_[i].msg_hdr.msg_iov = in_pieces_[i].data();
      in_[i].msg_hdr.msg_iovlen = in_pieces_[i].size();
      in_[i].msg_hdr.msg_control = controls_[i].bytes.data();
      out_[i].msg_hdr.msg_iov = out_pieces_[i].data();
    }
  }

  std::string_view name() const override { return name_; }
  Bytes frame_bytes() const override { return frame_bytes_; }
  size_t receive(std::span<ReceivedFrame> frames, Instant now) override {
    const size_t most = std::min(frames.size(), kBurst);
    for (size_t count = 0; count == 0;) {
      for (size_t i = 0; i < most; ++i) in_[i].msg_hdr.msg_controllen = sizeof(Control);
      const int received =
          recvmmsg(socket_.get(), in_.data(), static_cast<unsigned>(most), MSG_DONTWAIT, nullptr);
      if (received <= 0) return 0;
      timespec wall_clock;
      clock_gettime(CLOCK_REALTIME, &wall_clock);
      wall_clock_ns_ = ns_of(wall_clock);
      for (size_t i = 0; i < static_cast<size_t>(received); ++i) {
        ReceivedFrame& frame = frames[count];
        frame.bytes = open(i, now, frame.time);
        if (!frame.bytes.empty()) ++count;
      }
      if (count > 0) return count;
    }
    return 0;
  }

  void send(std::span<const OutgoingFrame> frames) override {
    while (!frames.empty()) {
      const size_t planned = plan(frames);
      const int sent = sendmmsg(socket_.get(), out_.data(), static_cast<unsigned>(planned),
                                MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      const auto done = static_cast<size_t>(std::max(sent, 0));
      if (done == 0) ++counters_.refused;  // the first one: the NIC's queue is full
      frames = frames.subspan(std::max<size_t>(done, 1));
    }
  }

  int wait_fd() const override { return socket_.get(); }
  FramePortCounters counters() override {
    tpacket_stats stats{};  // since the last time
    socklen_t length = sizeof stats;
    if (getsockopt(socket_.get(), SOL_PACKET, PACKET_STATISTICS, &stats, &length) == 0) {
      counters_.missed += stats.tp_drops;
    }
    return counters_;
  }

 private:
  // Empty for a frame that is dropped.
  std::span<const uint8_t> open(size_t slot, Instant now, Instant& time) {
    msghdr& header = in_[slot].msg_hdr;
    const Offload& offload = offloads_[slot];
    const size_t got = in_[slot].msg_len;
    if ((header.msg_flags & MSG_TRUNC) != 0 || offload.gso_type != kGsoNone) {
      ++counters_.too_long;
      return {};
    }
    if (got < sizeof(offload) + kEthernetBytes) return {};
    size_t size = got - sizeof(offload);
    uint8_t* frame = static_cast<uint8_t*>(header.msg_iov[1].iov_base);
    if ((offload.flags & kNeedsChecksum) != 0) {
      complete_checksum({frame, size}, offload.checksum_start,
                        offload.checksum_start + offload.checksum_offset);
    }
    time = now;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
        timespec arrival;
        std::memcpy(&arrival, CMSG_DATA(c), sizeof arrival);
        time = now - Duration::from_ns(std::max<int64_t>(wall_clock_ns_ - ns_of(arrival), 0));
      } else if (c->cmsg_level == SOL_PACKET && c->cmsg_type == PACKET_AUXDATA) {
        tpacket_auxdata auxiliary;
        std::memcpy(&auxiliary, CMSG_DATA(c), sizeof auxiliary);
        put_tag_back(frame, size, auxiliary);
      }
    }
    ++counters_.received_frames;
    return {frame, size};
  }

  // The kernel removes VLAN tags from frames.
  void put_tag_back(uint8_t*& frame, size_t& size, const tpacket_auxdata& auxiliary) {
    if ((auxiliary.tp_status & TP_STATUS_VLAN_VALID) == 0) return;
    std::memmove(frame - kVlanTagBytes, frame, kMacsBytes);
    frame -= kVlanTagBytes;
    size += kVlanTagBytes;
    const bool known = (auxiliary.tp_status & TP_STATUS_VLAN_TPID_VALID) != 0;
    const uint16_t words[2] = {htons(known ? auxiliary.tp_vlan_tpid : ETHERTYPE_VLAN),
                               htons(auxiliary.tp_vlan_tci)};
    std::memcpy(frame + kMacsBytes, words, sizeof words);
  }

  size_t plan(std::span<const OutgoingFrame> frames) {
    const size_t count = std::min(frames.size(), kBurst);
    for (size_t i = 0; i < count; ++i) {
      const auto piece = [](std::span<const uint8_t> bytes) {
        return iovec{const_cast<uint8_t*>(bytes.data()), bytes.size()};
      };
      out_pieces_[i] = {iovec{&complete_, sizeof complete_}, piece(frames[i].head),
                        piece(frames[i].rest)};
      out_[i].msg_hdr.msg_iovlen = frames[i].rest.empty() ? 2 : 3;
    }
    return count;
  }

  std::string name_;
  Bytes frame_bytes_;
  FileDescriptor socket_;
  FramePortCounters counters_;
  int64_t wall_clock_ns_ = 0;  // of the last burst, by the clock of the kernel's time stamps
  size_t stride_;
  std::vector<uint8_t> memory_;  // before each frame, room for a VLAN tag
  std::array<Offload, kBurst> offloads_{};
  std::array<mmsghdr, kBurst> in_{};
  std::array<std::array<iovec, 2>, kBurst> in_pieces_;
  std::array<Control, kBurst> controls_;
  std::array<mmsghdr, kBurst> out_{};
  std::array<std::array<iovec, 3>, kBurst> out_pieces_;
  Offload complete_{};  // goes before each frame: nothing is left to the device
};

template <typename T>
bool set(const FileDescriptor& socket, int level, int option, const T& value) {
  return setsockopt(socket.get(), level, option, &value, sizeof value) == 0;
}

tl::unexpected<Error> system_error(const std::string& interface, const char* what) {
  return fail(ErrorCode::kSystem,
              "the interface '{}' cannot be a port: {} failed ({}); a Linux kernel of 4.20 or "
              "later with packet sockets is needed",
              interface, what, std::strerror(errno));
}

Result<void> set_up(const FileDescriptor& socket, const std::string& interface) {
  const int on = 1;
  const auto index = static_cast<int>(if_nametoindex(interface.c_str()));
  if (!set(socket, SOL_PACKET, PACKET_VNET_HDR, on) ||
      !set(socket, SOL_PACKET, PACKET_AUXDATA, on) ||
      !set(socket, SOL_PACKET, PACKET_IGNORE_OUTGOING, on) ||
      !set(socket, SOL_SOCKET, SO_TIMESTAMPNS, on)) {
    return system_error(interface, "an option of the packet socket");
  }
  packet_mreq promiscuous{};
  promiscuous.mr_ifindex = index;
  promiscuous.mr_type = PACKET_MR_PROMISC;
  if (!set(socket, SOL_PACKET, PACKET_ADD_MEMBERSHIP, promiscuous)) {
    return system_error(interface, "the promiscuous mode");
  }
  // Without CAP_NET_ADMIN the size is limited by net.core.rmem_max.
  if (!set(socket, SOL_SOCKET, SO_RCVBUFFORCE, kBufferBytes)) {
    set(socket, SOL_SOCKET, SO_RCVBUF, kBufferBytes);
  }
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = index;
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return system_error(interface, "bind");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<FramePort>> open_packet_socket(const std::string& interface) {
  ASSIGN_OR_RETURN(const auto info, find_interface(interface));
  if (!info.up) {
    return fail(ErrorCode::kUnavailable,
                "interface '{0}' is down: bring it up with 'ip link set {0} up'", interface);
  }
  // With protocol 0 nothing arrives before the socket is bound to the interface.
  FileDescriptor socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!socket && (errno == EPERM || errno == EACCES)) {
    return fail(ErrorCode::kPermission,
                "a port on a network interface needs a packet socket: run as root, or give the "
                "program the capability CAP_NET_RAW");
  }
  if (!socket) return system_error(interface, "a packet socket");
  RETURN_IF_ERROR(set_up(socket, interface));
  const Bytes frame_bytes = info.mtu + kEthernetBytes + kVlanTagBytes;
  return std::make_unique<PacketSocket>(interface, frame_bytes, std::move(socket));
}

}  // namespace pacecar
