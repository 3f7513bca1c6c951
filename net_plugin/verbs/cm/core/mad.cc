#include "net_plugin/verbs/cm/core/mad.h"

#include <algorithm>

#include "transport/wire/big_endian.h"

namespace pacecar::ibverbs::cm {
namespace {

// The common header (13.4.2) begins with base version, management class and its version, and Send.
constexpr std::array<uint8_t, 4> kHeader = {1, 0x07, 2, 0x03};
constexpr size_t kTransactionAt = 8;
constexpr size_t kAttributeAt = 16;
constexpr size_t kBodyAt = 24;

constexpr uint16_t kDefaultPartition = 0xFFFF;
constexpr uint8_t kResponseTimeout = 20;  // code: 4.3 s, as Linux
constexpr uint8_t kMostTries = 15;
constexpr uint8_t kHopLimit = 64;

// The kinds of rejected messages, by code; the last one stands for all others.
constexpr std::array kRejected = {Kind::kRequest, Kind::kReply, Kind::kReadyToUse};

// Where the private data of each kind begins in the body; it goes on to the end.
size_t private_at(Kind kind) {
  constexpr std::array<uint8_t, 9> kAt = {140, 10, 84, 36, 8, 12, 8, 16, 96};
  return kAt[static_cast<size_t>(kind) - static_cast<size_t>(Kind::kRequest)];
}

// Writes the fields of a message into a body of zeros, or reads them: both by the same layout.
class Body {
 public:
  Body(uint8_t* bytes, bool writes) : bytes_(bytes), writes_(writes) {}

  // `width` bits, the highest first; bit 0 is the highest of the byte.
  template <typename T>
  void field(size_t byte, size_t bit, size_t width, T& value) {
    auto bits = writes_ ? static_cast<uint64_t>(value) : 0;
    for (size_t i = 0; i < width; ++i) {
      const size_t at = byte * 8 + bit + width - 1 - i;
      const size_t shift = 7 - at % 8;
      if (writes_) {
        bytes_[at / 8] |= static_cast<uint8_t>((bits >> i & 1) << shift);
      } else {
        bits |= (uint64_t{bytes_[at / 8]} >> shift & 1) << i;
      }
    }
    value = static_cast<T>(bits);
  }
  // A value that we always send, and ignore in received messages.
  void constant(size_t byte, size_t bit, size_t width, uint32_t value) {
    if (writes_) field(byte, bit, width, value);
  }
  void bytes(size_t byte, std::span<uint8_t> value) {
    for (uint8_t& each : value) field(byte++, 0, 8, each);
  }

 private:
  uint8_t* bytes_;
  bool writes_;
};

// False: for another kind of connection than RC.
bool request_fields(Body& body, Message& m) {
  body.field(8, 0, 64, m.service);
  body.field(16, 0, 64, m.guid);
  body.field(28, 0, 32, m.queue_key);
  body.field(32, 0, 24, m.queue_pair);
  body.field(35, 0, 8, m.responder_resources);
  body.field(39, 0, 8, m.initiator_depth);
  body.constant(43, 0, 5, kResponseTimeout);
  uint8_t service_type = 0;  // reliable connection
  body.field(43, 5, 2, service_type);
  body.field(43, 7, 1, m.flow_control);
  body.field(44, 0, 24, m.psn);
  body.constant(47, 0, 5, kResponseTimeout);
  body.field(47, 5, 3, m.retries);
  body.constant(48, 0, 16, kDefaultPartition);
  body.field(50, 0, 4, m.mtu);
  body.field(50, 5, 3, m.not_ready_retries);
  body.constant(51, 0, 4, kMostTries);
  body.field(51, 4, 1, m.shared_receives);
  uint8_t extended_type = 0;  // none
  body.field(51, 5, 3, extended_type);
  body.bytes(56, m.local_gid);
  body.bytes(72, m.remote_gid);
  body.constant(93, 0, 8, kHopLimit);
  body.field(95, 0, 5, m.ack_timeout);
  return service_type == 0 && extended_type == 0;
}

void reply_fields(Body& body, Message& m) {
  body.field(8, 0, 32, m.queue_key);
  body.field(12, 0, 24, m.queue_pair);
  body.field(20, 0, 24, m.psn);
  body.field(24, 0, 8, m.responder_resources);
  body.field(25, 0, 8, m.initiator_depth);
  body.field(26, 7, 1, m.flow_control);
  body.field(27, 0, 3, m.not_ready_retries);
  body.field(27, 3, 1, m.shared_receives);
  body.field(28, 0, 64, m.guid);
}

void reject_fields(Body& body, Message& m) {
  constexpr ptrdiff_t kOther = kRejected.size() - 1;
  auto code = std::min(std::ranges::find(kRejected, m.rejected) - kRejected.begin(), kOther);
  body.field(8, 0, 2, code);
  m.rejected = kRejected[static_cast<size_t>(std::min(code, kOther))];
  body.field(10, 0, 16, m.reason);
}

// False: no message that an end takes.
bool message_fields(Body body, Message& m) {
  body.field(0, 0, 32, m.local_id);
  // The sender of the others does not know the receiver's number.
  const bool names_both =
      m.kind != Kind::kRequest && m.kind != Kind::kFind && m.kind != Kind::kFound;
  if (names_both) body.field(4, 0, 32, m.remote_id);
  switch (m.kind) {
    case Kind::kRequest:
      if (!request_fields(body, m)) return false;
      break;
    case Kind::kReceipt: body.field(9, 0, 5, m.wait); break;
    case Kind::kReject: reject_fields(body, m); break;
    case Kind::kReply: reply_fields(body, m); break;
    case Kind::kDisconnect: body.field(8, 0, 24, m.queue_pair); break;
    case Kind::kFind:
      body.constant(4, 0, 16, kDefaultPartition);
      body.field(8, 0, 64, m.service);
      break;
    case Kind::kFound:
      body.field(4, 0, 8, m.status);
      body.field(8, 0, 24, m.queue_pair);
      body.field(12, 0, 64, m.service);
      body.field(20, 0, 32, m.queue_key);
      break;
    case Kind::kReadyToUse:
    case Kind::kDisconnected: break;
  }
  body.bytes(private_at(m.kind), std::span(m.private_data).first(private_bytes(m.kind)));
  return true;
}

}  // namespace

size_t private_bytes(Kind kind) { return kMadBytes - kBodyAt - private_at(kind); }

Mad encode(Message message) {
  Mad mad{};
  std::ranges::copy(kHeader, mad.begin());
  wire::store_be64(message.transaction, &mad[kTransactionAt]);
  wire::store_be16(static_cast<uint16_t>(message.kind), &mad[kAttributeAt]);
  message_fields({&mad[kBodyAt], true}, message);
  return mad;
}

std::optional<Message> decode(std::span<const uint8_t> bytes) {
  if (bytes.size() != kMadBytes || !std::ranges::equal(bytes.first<kHeader.size()>(), kHeader)) {
    return std::nullopt;
  }
  Mad mad;
  std::ranges::copy(bytes, mad.begin());
  const auto kind = static_cast<Kind>(wire::load_be16(&mad[kAttributeAt]));
  if (kind < Kind::kRequest || kind > Kind::kFound) return std::nullopt;
  Message message{.kind = kind, .transaction = wire::load_be64(&mad[kTransactionAt])};
  return message_fields({&mad[kBodyAt], false}, message) ? std::optional(message) : std::nullopt;
}

void encode(const IpHeader& header, std::span<uint8_t, IpHeader::kBytes> to) {
  std::ranges::fill(to, uint8_t{0});
  to[1] = static_cast<uint8_t>((header.ipv4 ? 4 : 6) << 4);
  wire::store_be16(header.port, &to[2]);
  std::ranges::copy(header.source, &to[4]);
  std::ranges::copy(header.destination, &to[20]);
}

std::optional<IpHeader> decode_ip(std::span<const uint8_t, IpHeader::kBytes> bytes) {
  const uint8_t version = bytes[1] >> 4;
  if (bytes[0] != 0 || (version != 4 && version != 6)) return std::nullopt;
  IpHeader header{.ipv4 = version == 4, .port = wire::load_be16(&bytes[2])};
  std::copy_n(&bytes[4], header.source.size(), header.source.begin());
  std::copy_n(&bytes[20], header.destination.size(), header.destination.begin());
  return header;
}

}  // namespace pacecar::ibverbs::cm
