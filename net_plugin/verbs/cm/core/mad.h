// The messages by which two hosts make a connection of RC, or find a queue pair of UD: management
// datagrams of the communication management class (InfiniBand Architecture Specification vol. 1,
// 12.6 and 13.4), and what RDMA over IP puts at the head of a request's private data (annex A11).
//
// Decoders accept any bytes. Pure functions; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace pacecar::ibverbs::cm {

inline constexpr size_t kMadBytes = 256;
inline constexpr uint32_t kGeneralServicesKey = 0x8001'0000;

using Gid = std::array<uint8_t, 16>;
using Mad = std::array<uint8_t, kMadBytes>;

enum class Kind : uint16_t {
  kRequest = 0x10,
  kReceipt = 0x11,  // MRA: "wait for longer"
  kReject = 0x12,
  kReply = 0x13,
  kReadyToUse = 0x14,
  kDisconnect = 0x15,
  kDisconnected = 0x16,
  kFind = 0x17,   // SIDR_REQ: which queue pair of UD has this service?
  kFound = 0x18,  // SIDR_REP
};

// Why a message is rejected (12.6.7.2).
inline constexpr uint16_t kUnknownNumber = 6;
inline constexpr uint16_t kInvalidService = 8;
inline constexpr uint16_t kRejectedByConsumer = 28;
// Of kFound (12.11.2.1).
inline constexpr uint8_t kServiceUnsupported = 1;
inline constexpr uint8_t kServiceRejected = 2;

// One message. Fields that its kind does not have are 0.
struct Message {
  Kind kind = Kind::kRequest;
  uint64_t transaction = 0;
  uint32_t local_id =
      0;  // the sender's number for the connection; of kFind and kFound, the request's
  uint32_t remote_id = 0;
  uint64_t service = 0;
  uint64_t guid = 0;
  uint32_t queue_key = 0;
  uint32_t queue_pair = 0;  // the sender's; of kDisconnect the receiver's
  uint32_t psn = 0;
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t retries = 0;
  uint8_t not_ready_retries = 0;
  uint8_t mtu = 0;          // as ibv_mtu
  uint8_t ack_timeout = 0;  // as ibv_qp_attr::timeout
  uint8_t wait = 0;         // of kReceipt: for so long, likewise
  uint8_t status = 0;       // of kFound
  uint16_t reason = 0;
  Kind rejected = Kind::kRequest;  // or kReply; else neither
  bool flow_control = false;
  bool shared_receives = false;
  Gid local_gid{};
  Gid remote_gid{};
  std::array<uint8_t, 224> private_data{};  // private_bytes(kind) of them
};

// How much of it a message of this kind has.
size_t private_bytes(Kind kind);
Mad encode(Message message);
// Nothing: no such message, or one for another kind of connection than RC.
std::optional<Message> decode(std::span<const uint8_t> bytes);

// Source and destination, in the format of RDMA over IP.
struct IpHeader {
  static constexpr size_t kBytes = 36;
  bool ipv4 = false;
  uint16_t port = 0;  // of the source
  Gid source{};       // an IPv4 address in its last bytes, after zeros
  Gid destination{};
};
void encode(const IpHeader& header, std::span<uint8_t, IpHeader::kBytes> to);
std::optional<IpHeader> decode_ip(std::span<const uint8_t, IpHeader::kBytes> bytes);

// A service of RDMA over IP, by its port space (RDMA_PS_TCP, RDMA_PS_UDP) and port.
constexpr uint64_t service_of(uint16_t port_space, uint16_t port) {
  return uint64_t{port_space} << 16 | port;
}

}  // namespace pacecar::ibverbs::cm
