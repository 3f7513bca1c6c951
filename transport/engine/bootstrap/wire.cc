#include "transport/engine/bootstrap/wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>

#include "transport/base/check.h"
#include "transport/wire/big_endian.h"

namespace pacecar::bootstrap {
namespace {

constexpr uint32_t kHandleMagic = 0x50435248;  // "PCRH"
constexpr uint32_t kFrameMagic = 0x50435246;   // "PCRF"

// The bytes of a handle; integers are big-endian.
struct HandleBytes {
  std::array<uint8_t, 4> magic;
  std::array<uint8_t, 4> version;
  std::array<uint8_t, 4> port;
  std::array<uint8_t, 4> reserved;  // 0
  std::array<uint8_t, 16> ip;
  Secret secret;
  Identity identity;
  std::array<uint8_t, 8> checksum;  // of all before it
};
static_assert(sizeof(HandleBytes) == sizeof(BootstrapHandle));

// FNV-1a, 64 bits. It detects damage, not forgery: anyone with a handle knows its secret.
uint64_t checksum(const HandleBytes& handle) {
  const auto bytes = std::bit_cast<BootstrapHandle>(handle).bytes;
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint8_t byte : std::span(bytes).first<offsetof(HandleBytes, checksum)>()) {
    hash = (hash ^ byte) * 0x100000001b3;
  }
  return hash;
}

struct BodyBounds {
  size_t min;
  size_t max;
};

constexpr BodyBounds body_bounds(FrameType type) {
  constexpr size_t kMac = sizeof(Mac);
  constexpr size_t kNonce = sizeof(Nonce);
  switch (type) {
    case FrameType::kHello: return {kNonce, kNonce};
    case FrameType::kChallenge: return {kMac + kNonce, kMac + kNonce};
    case FrameType::kOffer: return {kMac, kMac + kMaxBootstrapPayload};
    case FrameType::kReply: return {kMac + 1, kMac + 1 + kMaxBootstrapPayload};
    case FrameType::kConfirm: return {kMac, kMac};
    case FrameType::kVersionNotice: return {0, 0};
  }
  return {1, 0};  // no body fits an unknown type
}

}  // namespace

BootstrapHandle encode_handle(const HandleContents& contents) {
  HandleBytes bytes{
      .ip = contents.address.ip, .secret = contents.secret, .identity = contents.identity};
  wire::store_be32(kHandleMagic, bytes.magic.data());
  wire::store_be32(kVersion, bytes.version.data());
  wire::store_be32(contents.address.port, bytes.port.data());
  wire::store_be64(checksum(bytes), bytes.checksum.data());
  return std::bit_cast<BootstrapHandle>(bytes);
}

Result<HandleContents> parse_handle(const BootstrapHandle& handle) {
  const auto bytes = std::bit_cast<HandleBytes>(handle);
  if (wire::load_be32(bytes.magic.data()) != kHandleMagic) {
    return fail(
        ErrorCode::kInvalidArgument,
        "these bytes are not the handle of a Pacecar listener: under NCCL the peer uses "
        "another network, or other NCCL_* settings (compare both logs); other programs must "
        "pass on all 128 bytes unchanged");
  }
  if (const uint32_t version = wire::load_be32(bytes.version.data()); version != kVersion) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the handle is of bootstrap version {}, this process speaks version "
                            "{}: use the same Pacecar release on both hosts",
                            version, kVersion));
  }
  const uint32_t port = wire::load_be32(bytes.port.data());
  if (wire::load_be64(bytes.checksum.data()) != checksum(bytes) || port == 0 || port > UINT16_MAX) {
    return fail(ErrorCode::kInvalidArgument,
                "the listener's handle is damaged or cut short: pass on all 128 bytes that the "
                "listener gave, unchanged");
  }
  return HandleContents{.address = {.ip = bytes.ip, .port = static_cast<uint16_t>(port)},
                        .secret = bytes.secret,
                        .identity = bytes.identity};
}

Frame encode_frame(FrameType type, std::span<const uint8_t> first,
                   std::span<const uint8_t> second) {
  const size_t body_size = first.size() + second.size();
  const auto bounds = body_bounds(type);
  PACECAR_CHECK(body_size >= bounds.min && body_size <= bounds.max);
  Frame frame;
  wire::store_be32(kFrameMagic, frame.bytes.data());
  wire::store_be32(uint32_t{kVersion} << 24 | static_cast<uint32_t>(type) << 16 |
                       static_cast<uint32_t>(body_size),
                   frame.bytes.data() + 4);
  const auto end = std::copy(first.begin(), first.end(), frame.bytes.begin() + kHeaderBytes);
  std::copy(second.begin(), second.end(), end);
  frame.size = kHeaderBytes + body_size;
  return frame;
}

FrameHeader parse_header(std::span<const uint8_t, kHeaderBytes> bytes, FrameType expected) {
  const uint32_t word = wire::load_be32(bytes.data() + 4);
  FrameHeader header{HeaderVerdict::kForeign, static_cast<uint8_t>(word >> 24),
                     static_cast<uint16_t>(word)};
  if (wire::load_be32(bytes.data()) != kFrameMagic) return header;
  if (header.version != kVersion) {
    header.verdict = HeaderVerdict::kOtherVersion;
    return header;
  }
  const auto bounds = body_bounds(expected);
  const bool good = (word >> 16 & 0xff) == static_cast<uint32_t>(expected) &&
                    header.body_size >= bounds.min && header.body_size <= bounds.max;
  if (good) header.verdict = HeaderVerdict::kGood;
  return header;
}

std::vector<uint8_t> encode_reply(const Reply& reply) {
  std::vector<uint8_t> content(1 + reply.payload.size());
  content[0] = static_cast<uint8_t>(reply.status);
  std::copy(reply.payload.begin(), reply.payload.end(), content.begin() + 1);
  return content;
}

std::optional<Nonce> parse_nonce(std::span<const uint8_t> content) {
  Nonce nonce;
  if (content.size() != nonce.size()) return std::nullopt;
  std::copy(content.begin(), content.end(), nonce.begin());
  return nonce;
}

std::optional<SealedBody> parse_sealed(std::span<const uint8_t> body) {
  SealedBody sealed;
  if (body.size() < sealed.mac.size()) return std::nullopt;
  std::copy_n(body.begin(), sealed.mac.size(), sealed.mac.begin());
  sealed.content = body.subspan(sealed.mac.size());
  return sealed;
}

std::optional<Reply> parse_reply(std::span<const uint8_t> content) {
  if (content.empty() || content[0] > static_cast<uint8_t>(ReplyStatus::kStale)) {
    return std::nullopt;
  }
  return Reply{static_cast<ReplyStatus>(content[0]), content.subspan(1)};
}

}  // namespace pacecar::bootstrap
