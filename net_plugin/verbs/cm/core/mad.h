// The messages that make an RC connection, or find a UD queue pair: management datagrams of the
// communication management class (InfiniBand Architecture Specification vol. 1, 12.6 and 13.4), and
// the header of RDMA over IP at the start of a request's private data (annex A11). Decoders accept
// any bytes. Pure functions; any thread.
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
  kFind = 0x17,   // SIDR_REQ: asks for the UD queue pair of a service
  kFound = 0x18,  // SIDR_REP
};

// Why a message is rejected (12.6.7.2).
inline constexpr uint16_t kUnknownNumber = 6;
inline constexpr uint16_t kInvalidService = 8;
inline constexpr uint16_t kInvalidMtu = 26;
inline constexpr uint16_t kRejectedByConsumer = 28;
// The status in kFound (12.11.2.1).
inline constexpr uint8_t kServiceUnsupported = 1;
inline constexpr uint8_t kServiceRejected = 2;

// One message. Fields that its kind does not have are 0.
struct Message {
  Kind kind = Kind::kRequest;
  uint64_t transaction = 0;
  uint32_t local_id = 0;   // the sender's number of the connection; in kFound, that of kFind
  uint32_t remote_id = 0;  // the receiver's number of the connection
  uint64_t service = 0;
  uint64_t guid = 0;
  uint32_t queue_key = 0;
  uint32_t queue_pair = 0;  // of the sender; in kDisconnect of the receiver
  uint32_t psn = 0;
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t retries = 0;
  uint8_t not_ready_retries = 0;
  uint8_t mtu = 0;          // as ibv_mtu
  uint8_t ack_timeout = 0;  // as ibv_qp_attr::timeout
  uint8_t wait = 0;         // in kReceipt: time until the answer, in the same code
  uint8_t status = 0;       // in kFound
  uint16_t reason = 0;
  Kind rejected = Kind::kRequest;  // or kReply; any other: neither
  bool flow_control = false;
  bool shared_receives = false;
  Gid local_gid{};
  Gid remote_gid{};
  std::array<uint8_t, 224> private_data{};  // of which private_bytes(kind) are sent
};

size_t private_bytes(Kind kind);  // The size of the private data in a message of this kind.
Mad encode(Message message);
// None: not such a message, or one for a connection that is not RC.
std::optional<Message> decode(std::span<const uint8_t> bytes);

// The header of RDMA over IP: source and destination.
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
