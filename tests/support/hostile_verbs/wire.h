// The network between hostile devices. Packets are datagrams between Unix sockets, so that devices
// of several processes reach each other. In mode `by_hand` all devices are in this process, and
// packets are passed in memory. Nothing is lost while both links are up.
//
// Thread rule: one thread at a time; in mode `by_hand` always the same thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace pacecar::hostile {

// The address of a packet: a device that one process has open.
struct Port {
  uint16_t device = 0;
  uint16_t context = 0;

  bool operator==(const Port&) const = default;
};

enum class PacketKind : uint8_t { kWrite, kSend, kReadRequest, kReadResponse, kAck, kNak };
enum class Nak : uint8_t { kSequence, kNotReady, kInvalid, kAccess, kOperation };

struct PacketHeader {
  uint32_t queue_pair = 0;  // of the destination
  uint32_t psn = 0;
  uint64_t address = 0;  // of this packet's part
  uint64_t total = 0;    // of the message
  uint32_t key = 0;
  uint32_t immediate = 0;
  Port from;
  PacketKind kind = PacketKind::kAck;
  Nak nak = Nak::kSequence;
  uint8_t reads = 0;  // that the requester may have in flight
  bool first = false;
  bool last = false;
  bool has_immediate = false;
  bool solicited = false;
  bool full_member = true;  // the sender, of its partition
};

struct Packet {
  PacketHeader header;
  std::vector<uint8_t> payload;
};

class Wire {
 public:
  static constexpr size_t kSegment = 16384;  // most payload of a packet

  // Takes the first free context number of the device. Throws std::system_error.
  Wire(std::string world, uint16_t device, bool by_hand);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  Port port() const { return port_; }
  int fd() const { return socket_; }
  void send(Port to, Packet packet);
  // Sends packets that had no room before.
  void flush();
  bool backlogged() const { return !waiting_.empty(); }
  std::optional<Packet> receive();

  bool up = true;  // false: nothing passes in either direction

 private:
  bool try_send(Port to, const Packet& packet);

  std::string world_;
  const bool by_hand_;
  Port port_;
  std::deque<Packet> arrived_;  // by hand
  int socket_ = -1;
  std::unordered_map<uint32_t, std::deque<Packet>> waiting_;  // by port
  std::vector<uint8_t> buffer_;
};

}  // namespace pacecar::hostile
