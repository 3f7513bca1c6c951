// Addresses of queue pairs, with the extended mode, its security and a standby lane, and messages
// about lanes that recover. An accepted one is within its bounds, and is the same after it is
// encoded and decoded again.
#include <algorithm>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/nic/lanes/lane_recovery.h"
#include "transport/softnic/endpoint.h"
#include "transport/wire/extended.h"

namespace pacecar::endpoint_fuzz {
namespace {

void check_endpoint(std::span<const uint8_t> bytes) {
  const auto peer = decode_endpoint(bytes);
  if (!peer || !peer->extended) return;
  const SoftEndpoint& extended = *peer->extended;
  PACECAR_CHECK(extended.security <= Security::kEncrypt);
  PACECAR_CHECK(extended.mtu <= wire::kMaxDatagramBytes && extended.window_packets > 0);
  const auto again = decode_endpoint(encode(extended, true, peer->standby).view());
  PACECAR_CHECK(again && again->extended && again->standby == peer->standby);
  PACECAR_CHECK(again->extended->address == extended.address);
  PACECAR_CHECK(again->extended->queue_pair == extended.queue_pair);
  PACECAR_CHECK(again->extended->first_psn == extended.first_psn);
  PACECAR_CHECK(again->extended->security == extended.security);
  PACECAR_CHECK(again->extended->public_key == extended.public_key);
  PACECAR_CHECK(again->extended->salt == extended.salt);
  if (peer->standby) return;
  const auto all = decode_endpoint(encode(extended, true, {}, peer->further).view());
  PACECAR_CHECK(all && all->further.size() == peer->further.size());
  for (size_t i = 0; i < all->further.size(); ++i) {
    PACECAR_CHECK(all->further[i].address == peer->further[i].address);
    PACECAR_CHECK(all->further[i].queue_pair == peer->further[i].queue_pair);
    PACECAR_CHECK(all->further[i].first_psn == peer->further[i].first_psn);
    PACECAR_CHECK(all->further[i].salt == peer->further[i].salt);
  }
}

void check_message(std::span<const uint8_t> bytes) {
  const auto message = decode_recovery_message(bytes);
  if (message) PACECAR_CHECK(std::ranges::equal(encode(*message), bytes));
}

}  // namespace

FUZZ_TARGET(endpoint) {
  check_endpoint({data, size});
  check_message({data, size});
  return 0;
}

}  // namespace pacecar::endpoint_fuzz
