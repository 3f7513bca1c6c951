// The decoders of peers' NICs and lanes: the first byte chooses one, the rest is its input. An
// accepted input must encode to the same bytes.
#include <algorithm>

#include "tests/fuzz/fuzz_target.h"
#include "transport/api/lane_list.h"
#include "transport/base/check.h"

namespace pacecar::lanes_fuzz {
namespace {

void check_name(std::span<const uint8_t> input) {
  bootstrap::Identity name{};
  std::copy_n(input.begin(), std::min(input.size(), name.size()), name.begin());
  const auto process = named_process(name);
  if (process)
    PACECAR_CHECK(name_process(process->identity, process->devices, process->addresses) == name);
}

void check_lanes(std::span<const uint8_t> input) {
  if (const auto text = unpack_no_lanes(input)) {
    PACECAR_CHECK(pack_no_lanes(*text).size() == input.size());
  }
  const auto lanes = unpack_lanes(input);
  if (!lanes) return;
  PACECAR_CHECK(std::ranges::equal(pack_lanes(*lanes), input));
  for (const Blob& lane : *lanes) {
    const auto offer = addressed_offer(lane);
    if (offer) PACECAR_CHECK(address_offer(offer->nic, offer->words) == lane);
  }
}

}  // namespace

FUZZ_TARGET(lanes) {
  if (size == 0) return 0;
  const std::span<const uint8_t> input(data + 1, size - 1);
  if (data[0] == 0) {
    check_name(input);
  } else if (input.size() <= kMaxBootstrapPayload) {
    check_lanes(input);
  }
  return 0;
}

}  // namespace pacecar::lanes_fuzz
