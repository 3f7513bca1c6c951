// Bytes of the bootstrap: the handle that a listener publishes, and the frames that the two sides
// exchange over TCP. All integers are in network byte order.
//   connector                                   listener
//     hello      nonce_c                   ->
//                                          <-   challenge  MAC, nonce_s
//     offer      MAC, payload              ->
//                                          <-   reply      MAC, status, payload
//     confirm    MAC                       ->
// A connector that finds the challenge's MAC wrong sends an offer whose MAC is zeros, which is
// never valid, and closes the connection. The 8-byte frame header (magic, version, type, size of
// the body) is the same in every version, so that peers can detect different versions. A MAC
// (auth.h) covers the rest of its body. Pure. Thread rule: any.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/result.h"
#include "transport/wire/packet.h"

namespace pacecar {

// The listener's handle, which the application carries to its peers.
struct BootstrapHandle {
  std::array<uint8_t, 128> bytes{};
};

constexpr size_t kMaxBootstrapPayload = 4096;  // bytes of an offer or of a reply

namespace bootstrap {

constexpr uint8_t kVersion = 5;
constexpr size_t kHeaderBytes = 8;

using Secret = std::array<uint8_t, 16>;
using Identity = std::array<uint8_t, 72>;
using Nonce = std::array<uint8_t, 16>;
using Mac = std::array<uint8_t, 32>;

struct HandleContents {
  Address address;  // of the listener
  Secret secret{};
  Identity identity{};  // bytes of the owner, which name its NICs
};

BootstrapHandle encode_handle(const HandleContents& contents);
// Errors: kInvalidArgument, if the bytes are not a handle, or one of another version or damaged.
Result<HandleContents> parse_handle(const BootstrapHandle& handle);

enum class FrameType : uint8_t {
  kHello = 1,
  kChallenge,
  kOffer,
  kReply,
  kConfirm,
  kVersionNotice,  // the sender's version is that of this header; no body
};

enum class ReplyStatus : uint8_t {
  kAccepted = 0,
  kRefused = 1,
  kStale = 2,  // refused: the offer refers to a flow that has ended
};

// A frame on the wire; the largest is a reply.
struct Frame {
  static constexpr size_t kMaxBytes = kHeaderBytes + sizeof(Mac) + 1 + kMaxBootstrapPayload;
  std::array<uint8_t, kMaxBytes> bytes;
  size_t size = 0;
};

// Writes header and body; the body is `first` followed by `second` and within the type's bounds.
Frame encode_frame(FrameType type, std::span<const uint8_t> first,
                   std::span<const uint8_t> second = {});

enum class HeaderVerdict {
  kGood,
  kForeign,       // not ours, not the expected type, or a size outside the type's bounds
  kOtherVersion,  // ours, of another version; its body is unknown
};

struct FrameHeader {
  HeaderVerdict verdict;
  uint8_t version;     // except of kForeign
  uint16_t body_size;  // of kGood only
};

FrameHeader parse_header(std::span<const uint8_t, kHeaderBytes> bytes, FrameType expected);

// A body that starts with a MAC; `content` is the rest.
struct SealedBody {
  Mac mac;
  std::span<const uint8_t> content;
};

struct Reply {
  ReplyStatus status;
  std::span<const uint8_t> payload;  // if it is not accepted: the reason
};

std::vector<uint8_t> encode_reply(const Reply& reply);

// nullopt: the bytes do not have this form.
std::optional<Nonce> parse_nonce(std::span<const uint8_t> content);
std::optional<SealedBody> parse_sealed(std::span<const uint8_t> body);
std::optional<Reply> parse_reply(std::span<const uint8_t> content);

}  // namespace bootstrap
}  // namespace pacecar
