// The bootstrap's parsers: the first byte chooses one, the rest is its input. An accepted input
// must encode to the same bytes.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/engine/bootstrap/wire.h"

namespace pacecar::bootstrap::bootstrap_fuzz {
namespace {

using Bytes = std::span<const uint8_t>;

void expect_same(Bytes encoded, Bytes input) {
  PACECAR_CHECK(std::equal(encoded.begin(), encoded.end(), input.begin(), input.end()));
}

void check_handle(Bytes input) {
  BootstrapHandle handle;
  std::copy_n(input.begin(), std::min(input.size(), handle.bytes.size()), handle.bytes.begin());
  const auto contents = parse_handle(handle);
  if (contents) expect_same(encode_handle(*contents).bytes, handle.bytes);
}

void check_frame(FrameType type, Bytes input) {
  if (input.size() < kHeaderBytes) return;
  const auto header = parse_header(input.first<kHeaderBytes>(), type);
  if (header.verdict != HeaderVerdict::kGood) return;
  PACECAR_CHECK(kHeaderBytes + header.body_size <= Frame::kMaxBytes);
  if (input.size() < kHeaderBytes + header.body_size) return;
  const Bytes body = input.subspan(kHeaderBytes, header.body_size);
  const Frame frame = encode_frame(type, body);
  expect_same(Bytes(frame.bytes).first(frame.size), input.first(frame.size));

  // The handshake relies on this: every body that fits its header has all its parts.
  if (type == FrameType::kHello) PACECAR_CHECK(parse_nonce(body));
  if (type == FrameType::kHello || type == FrameType::kVersionNotice) return;
  const auto sealed = parse_sealed(body);
  PACECAR_CHECK(sealed);
  if (type == FrameType::kChallenge) PACECAR_CHECK(parse_nonce(sealed->content));
  if (type != FrameType::kReply) return;
  if (const auto reply = parse_reply(sealed->content)) {
    expect_same(encode_reply(*reply), sealed->content);
  }
}

}  // namespace

FUZZ_TARGET(bootstrap) {
  if (size == 0) return 0;
  const std::span<const uint8_t> input(data + 1, size - 1);
  if (data[0] == 0) {
    check_handle(input);
  } else {
    check_frame(static_cast<FrameType>(data[0]), input);
  }
  return 0;
}

}  // namespace pacecar::bootstrap::bootstrap_fuzz
