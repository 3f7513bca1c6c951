#include "tests/support/hostile_verbs/wire.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace pacecar::hostile {
namespace {

constexpr uint32_t kContexts = 1 << 12;

struct SocketName {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  socklen_t length = 0;
};

SocketName name_of(const std::string& world, Port port) {
  const std::string text = "hostile-verbs/" + world + "/" + std::to_string(port.device) + "/" +
                           std::to_string(port.context);
  SocketName name;
  std::memcpy(name.address.sun_path + 1, text.data(), text.size());  // abstract
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return name;
}

uint32_t key_of(Port port) { return uint32_t{port.device} << 16 | port.context; }

std::unordered_map<uint32_t, Wire*>& wires_by_hand() {
  static auto* const all = new std::unordered_map<uint32_t, Wire*>;  // by port
  return *all;
}

Port port_of(uint32_t key) {
  return {static_cast<uint16_t>(key >> 16), static_cast<uint16_t>(key)};
}

}  // namespace

Wire::Wire(std::string world, uint16_t device, bool by_hand)
    : world_(std::move(world)), by_hand_(by_hand), buffer_(sizeof(PacketHeader) + kSegment) {
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) throw std::system_error(errno, std::generic_category(), "socket");
  for (port_ = {device, 0}; port_.context < kContexts; ++port_.context) {
    const SocketName name = name_of(world_, port_);
    if (bind(socket_, reinterpret_cast<const sockaddr*>(&name.address), name.length) != 0) continue;
    if (by_hand_) wires_by_hand()[key_of(port_)] = this;
    return;
  }
  const int error = errno;
  close(socket_);
  throw std::system_error(error, std::generic_category(), "no context is free");
}

Wire::~Wire() {
  if (by_hand_) wires_by_hand().erase(key_of(port_));
  close(socket_);
}

void Wire::send(Port to, Packet packet) {
  if (!up) return;
  packet.header.from = port_;
  if (by_hand_) {
    const auto peer = wires_by_hand().find(key_of(to));
    if (peer != wires_by_hand().end()) peer->second->arrived_.push_back(std::move(packet));
    return;
  }
  const auto waiting = waiting_.find(key_of(to));
  if (waiting == waiting_.end() && try_send(to, packet)) return;
  waiting_[key_of(to)].push_back(std::move(packet));
}

void Wire::flush() {
  for (auto each = waiting_.begin(); each != waiting_.end();) {
    auto& [key, packets] = *each;
    while (!packets.empty() && try_send(port_of(key), packets.front())) packets.pop_front();
    each = packets.empty() ? waiting_.erase(each) : std::next(each);
  }
}

// A packet to an address without a listener is lost.
bool Wire::try_send(Port to, const Packet& packet) {
  const SocketName name = name_of(world_, to);
  PacketHeader header = packet.header;
  iovec parts[] = {{&header, sizeof header},
                   {const_cast<uint8_t*>(packet.payload.data()), packet.payload.size()}};
  msghdr message{};
  message.msg_name = const_cast<sockaddr_un*>(&name.address);
  message.msg_namelen = name.length;
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  return sendmsg(socket_, &message, MSG_NOSIGNAL) >= 0 || (errno != EAGAIN && errno != ENOBUFS);
}

std::optional<Packet> Wire::receive() {
  if (by_hand_) {
    if (!up) arrived_.clear();
    if (arrived_.empty()) return std::nullopt;
    std::optional<Packet> packet(std::move(arrived_.front()));
    arrived_.pop_front();
    return packet;
  }
  for (;;) {
    const ssize_t size = recv(socket_, buffer_.data(), buffer_.size(), 0);
    if (size < static_cast<ssize_t>(sizeof(PacketHeader))) return std::nullopt;
    if (!up) continue;
    Packet packet;
    std::memcpy(&packet.header, buffer_.data(), sizeof packet.header);
    packet.payload.assign(buffer_.begin() + sizeof packet.header, buffer_.begin() + size);
    return packet;
  }
}

}  // namespace pacecar::hostile
