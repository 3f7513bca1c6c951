#include "net_plugin/libfabric/endpoint/operation.h"

#include <cstring>
#include <utility>

namespace pacecar::fabric {

Result<void> Operation::deliver() {
  if (bounce == nullptr) return {};
  const Local device = std::exchange(bounce->device, Local());
  return device.copy_in({bounce->host.data(), bounce->bytes});
}

bool Operation::take_segments(std::span<const uint8_t> payload, uint64_t bytes) {
  const size_t count = payload.size() / sizeof(RemoteSegment);
  const bool whole = payload.size() == count * sizeof(RemoteSegment) && count <= kMaxSegments;
  if (!whole) return false;
  std::memcpy(segments.data(), payload.data(), payload.size());
  segment_count = count;
  for (size_t i = 0; i < count; ++i) {
    if (segments[i].length > bytes) return false;
    bytes -= segments[i].length;
  }
  return bytes == 0;
}

}  // namespace pacecar::fabric
