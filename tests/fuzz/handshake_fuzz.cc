// The decoders of offers and answers: an accepted input must encode to the same bytes.
#include <algorithm>

#include "transport/base/check.h"
#include "transport/message/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> input(data, size);
  if (const auto offer = pacecar::decode_offer(input)) {
    PACECAR_CHECK(std::ranges::equal(encode(*offer), input));
  }
  if (const auto answer = pacecar::decode_answer(input)) {
    PACECAR_CHECK(std::ranges::equal(encode(*answer), input));
  }
  return 0;
}
