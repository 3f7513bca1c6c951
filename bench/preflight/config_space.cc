#include "bench/preflight/config_space.h"

#include <cstddef>
#include <cstdint>

namespace pacecar::preflight {
namespace {

constexpr size_t kExtendedStart = 0x100;
constexpr size_t kMaxCapabilities = (4096 - kExtendedStart) / 4;
constexpr uint32_t kAcsId = 0x000d;
constexpr size_t kAcsControl = 6;
// P2P Request Redirect, P2P Completion Redirect, Upstream Forwarding.
constexpr uint32_t kRedirects = 0x04 | 0x08 | 0x10;

uint32_t little_endian(std::string_view bytes, size_t offset, size_t size) {
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[offset + i])) << (8 * i);
  }
  return value;
}

}  // namespace

AcsState acs_state(std::string_view config) {
  if (config.size() <= kExtendedStart) return AcsState::kUnreadable;
  size_t offset = kExtendedStart;
  // The list is written by a device: it may be truncated or have a loop.
  for (size_t i = 0; i < kMaxCapabilities; ++i) {
    if (offset < kExtendedStart || offset + kAcsControl + 2 > config.size()) break;
    const uint32_t header = little_endian(config, offset, 4);
    if ((header & 0xffff) == kAcsId) {
      const uint32_t control = little_endian(config, offset + kAcsControl, 2);
      return (control & kRedirects) == 0 ? AcsState::kOff : AcsState::kRedirects;
    }
    offset = header >> 20;
  }
  return AcsState::kOff;
}

}  // namespace pacecar::preflight
