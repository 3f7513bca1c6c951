// The decoders of offers and answers: an accepted input must encode to the same bytes.
#include <algorithm>

#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/message/handshake.h"

namespace pacecar::handshake_fuzz {

FUZZ_TARGET(handshake) {
  const std::span<const uint8_t> input(data, size);
  if (const auto offer = decode_offer(input)) {
    PACECAR_CHECK(std::ranges::equal(encode(*offer), input));
  }
  if (const auto answer = decode_answer(input)) {
    PACECAR_CHECK(std::ranges::equal(encode(*answer), input));
  }
  return 0;
}

}  // namespace pacecar::handshake_fuzz
