#include "net_plugin/verbs/cm/core/mad.h"

#include <algorithm>

#include "transport/wire/big_endian.h"

namespace pacecar::ibverbs::cm {
namespace {

using wire::load_be16;
using wire::load_be32;
using wire::load_be64;
using wire::store_be16;
using wire::store_be32;
using wire::store_be64;

// The common header (13.4.2).
constexpr uint8_t kBaseVersion = 1;
constexpr uint8_t kManagementClass = 0x07;
constexpr uint8_t kClassVersion = 2;
constexpr uint8_t kSend = 0x03;
constexpr size_t kTransactionAt = 8;
constexpr size_t kAttributeAt = 16;
constexpr size_t kBodyAt = 24;

// The constant fields of our requests, and those that identify another host's as RC.
constexpr uint16_t kDefaultPartition = 0xFFFF;
constexpr uint8_t kResponseTimeout = 20;  // 4.3 s, as Linux
constexpr uint8_t kMostTries = 15;
constexpr uint8_t kReliableConnection = 0;
constexpr uint8_t kRate = 3 << 2;  // 10 Gb/s, in the upper six bits; nobody goes by it
constexpr uint8_t kHopLimit = 64;

enum RejectedMessage : uint8_t { kRejectedRequest = 0, kRejectedReply = 1, kRejectedOther = 2 };

// Where the private data of a kind begins; it goes on to the end.
size_t private_at(Kind kind) {
  switch (kind) {
    case Kind::kRequest:
      return 140;
    case Kind::kReceipt:
      return 10;
    case Kind::kReject:
      return 84;
    case Kind::kReply:
      return 36;
    case Kind::kReadyToUse:
    case Kind::kDisconnected:
      return 8;
    case Kind::kDisconnect:
      return 12;
    case Kind::kFind:
      return 16;
    case Kind::kFound:
      return 96;
  }
  return kMadBytes - kBodyAt;
}

// 24 bits before a byte of another field.
uint32_t load_24(const uint8_t* from) { return load_be32(from) >> 8; }
void store_24(uint32_t value, uint8_t low, uint8_t* to) { store_be32(value << 8 | low, to); }

void put_request(const Message& m, uint8_t* b) {
  store_be32(m.local_id, b);
  store_be64(m.service, b + 8);
  store_be64(m.guid, b + 16);
  store_be32(m.queue_key, b + 28);
  store_24(m.queue_pair, m.responder_resources, b + 32);
  store_24(0, m.initiator_depth, b + 36);
  const auto flow_control = static_cast<uint8_t>(m.flow_control ? 1 : 0);
  store_24(0, static_cast<uint8_t>(kResponseTimeout << 3 | flow_control), b + 40);
  store_24(m.psn, static_cast<uint8_t>(kResponseTimeout << 3 | (m.retries & 7)), b + 44);
  store_be16(kDefaultPartition, b + 48);
  b[50] = static_cast<uint8_t>(m.mtu << 4 | (m.not_ready_retries & 7));
  b[51] = static_cast<uint8_t>(kMostTries << 4 | (m.shared_receives ? 8 : 0));
  std::ranges::copy(m.local_gid, b + 56);
  std::ranges::copy(m.remote_gid, b + 72);
  store_be32(kRate, b + 88);
  b[93] = kHopLimit;
  b[95] = static_cast<uint8_t>(m.ack_timeout << 3);
}

bool get_request(const uint8_t* b, Message* m) {
  if ((b[43] >> 1 & 3) != kReliableConnection || (b[51] & 7) != 0) return false;
  m->local_id = load_be32(b);
  m->service = load_be64(b + 8);
  m->guid = load_be64(b + 16);
  m->queue_key = load_be32(b + 28);
  m->queue_pair = load_24(b + 32);
  m->responder_resources = b[35];
  m->initiator_depth = b[39];
  m->flow_control = (b[43] & 1) != 0;
  m->psn = load_24(b + 44);
  m->retries = b[47] & 7;
  m->mtu = b[50] >> 4;
  m->not_ready_retries = b[50] & 7;
  m->shared_receives = (b[51] & 8) != 0;
  std::copy_n(b + 56, m->local_gid.size(), m->local_gid.begin());
  std::copy_n(b + 72, m->remote_gid.size(), m->remote_gid.begin());
  m->ack_timeout = b[95] >> 3;
  return true;
}

void put_reply(const Message& m, uint8_t* b) {
  store_be32(m.queue_key, b + 8);
  store_24(m.queue_pair, 0, b + 12);
  store_24(m.psn, 0, b + 20);
  b[24] = m.responder_resources;
  b[25] = m.initiator_depth;
  b[26] = m.flow_control ? 1 : 0;
  b[27] = static_cast<uint8_t>((m.not_ready_retries & 7) << 5 | (m.shared_receives ? 0x10 : 0));
  store_be64(m.guid, b + 28);
}

void get_reply(const uint8_t* b, Message* m) {
  m->queue_key = load_be32(b + 8);
  m->queue_pair = load_24(b + 12);
  m->psn = load_24(b + 20);
  m->responder_resources = b[24];
  m->initiator_depth = b[25];
  m->flow_control = (b[26] & 1) != 0;
  m->not_ready_retries = b[27] >> 5;
  m->shared_receives = (b[27] & 0x10) != 0;
  m->guid = load_be64(b + 28);
}

void put_reject(const Message& m, uint8_t* b) {
  b[8] = static_cast<uint8_t>((m.rejected == Kind::kRequest ? kRejectedRequest
                               : m.rejected == Kind::kReply ? kRejectedReply
                                                            : kRejectedOther)
                              << 6);
  store_be16(m.reason, b + 10);
}

void get_reject(const uint8_t* b, Message* m) {
  const uint8_t what = b[8] >> 6;
  m->rejected = what == kRejectedRequest ? Kind::kRequest
                : what == kRejectedReply ? Kind::kReply
                                         : Kind::kReadyToUse;
  m->reason = load_be16(b + 10);
}

void put_found(const Message& m, uint8_t* b) {
  b[4] = m.status;
  store_24(m.queue_pair, 0, b + 8);
  store_be64(m.service, b + 12);
  store_be32(m.queue_key, b + 20);
}

void get_found(const uint8_t* b, Message* m) {
  m->status = b[4];
  m->queue_pair = load_24(b + 8);
  m->service = load_be64(b + 12);
  m->queue_key = load_be32(b + 20);
}

// The sender knows the receiver's number.
bool names_both(Kind kind) {
  return kind != Kind::kRequest && kind != Kind::kFind && kind != Kind::kFound;
}

bool known(uint16_t attribute) {
  return attribute >= static_cast<uint16_t>(Kind::kRequest) &&
         attribute <= static_cast<uint16_t>(Kind::kFound);
}

}  // namespace

size_t private_bytes(Kind kind) { return kMadBytes - kBodyAt - private_at(kind); }

Mad encode(const Message& m) {
  Mad mad{};
  mad[0] = kBaseVersion;
  mad[1] = kManagementClass;
  mad[2] = kClassVersion;
  mad[3] = kSend;
  store_be64(m.transaction, &mad[kTransactionAt]);
  store_be16(static_cast<uint16_t>(m.kind), &mad[kAttributeAt]);
  uint8_t* const body = &mad[kBodyAt];
  store_be32(m.local_id, body);
  if (names_both(m.kind)) store_be32(m.remote_id, body + 4);
  switch (m.kind) {
    case Kind::kRequest:
      put_request(m, body);
      break;
    case Kind::kReceipt:
      body[9] = static_cast<uint8_t>(m.wait << 3);
      break;
    case Kind::kReject:
      put_reject(m, body);
      break;
    case Kind::kReply:
      put_reply(m, body);
      break;
    case Kind::kDisconnect:
      store_24(m.queue_pair, 0, body + 8);
      break;
    case Kind::kFind:
      store_be16(kDefaultPartition, body + 4);
      store_be64(m.service, body + 8);
      break;
    case Kind::kFound:
      put_found(m, body);
      break;
    case Kind::kReadyToUse:
    case Kind::kDisconnected:
      break;
  }
  std::copy_n(m.private_data.begin(), private_bytes(m.kind), body + private_at(m.kind));
  return mad;
}

std::optional<Message> decode(std::span<const uint8_t> bytes) {
  if (bytes.size() != kMadBytes || bytes[0] != kBaseVersion || bytes[1] != kManagementClass ||
      bytes[2] != kClassVersion || bytes[3] != kSend) {
    return std::nullopt;
  }
  const uint16_t attribute = load_be16(&bytes[kAttributeAt]);
  if (!known(attribute)) return std::nullopt;
  Message m{.kind = static_cast<Kind>(attribute), .transaction = load_be64(&bytes[kTransactionAt])};
  const uint8_t* const body = &bytes[kBodyAt];
  m.local_id = load_be32(body);
  switch (m.kind) {
    case Kind::kRequest:
      if (!get_request(body, &m)) return std::nullopt;
      break;
    case Kind::kReceipt:
      m.wait = body[9] >> 3;
      break;
    case Kind::kReject:
      get_reject(body, &m);
      break;
    case Kind::kReply:
      get_reply(body, &m);
      break;
    case Kind::kDisconnect:
      m.queue_pair = load_24(body + 8);
      break;
    case Kind::kFind:
      m.service = load_be64(body + 8);
      break;
    case Kind::kFound:
      get_found(body, &m);
      break;
    case Kind::kReadyToUse:
    case Kind::kDisconnected:
      break;
  }
  if (names_both(m.kind)) m.remote_id = load_be32(body + 4);
  std::copy_n(body + private_at(m.kind), private_bytes(m.kind), m.private_data.begin());
  return m;
}

void encode(const IpHeader& header, std::span<uint8_t, IpHeader::kBytes> to) {
  std::ranges::fill(to, uint8_t{0});
  to[1] = static_cast<uint8_t>((header.ipv4 ? 4 : 6) << 4);
  store_be16(header.port, &to[2]);
  std::ranges::copy(header.source, &to[4]);
  std::ranges::copy(header.destination, &to[20]);
}

std::optional<IpHeader> decode_ip(std::span<const uint8_t, IpHeader::kBytes> bytes) {
  const uint8_t version = bytes[1] >> 4;
  if (bytes[0] != 0 || (version != 4 && version != 6)) return std::nullopt;
  IpHeader header{.ipv4 = version == 4, .port = load_be16(&bytes[2])};
  std::copy_n(&bytes[4], header.source.size(), header.source.begin());
  std::copy_n(&bytes[20], header.destination.size(), header.destination.begin());
  return header;
}

}  // namespace pacecar::ibverbs::cm
