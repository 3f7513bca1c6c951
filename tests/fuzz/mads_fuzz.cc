// Messages of connection management of any bytes, to an end in any state: no crash, a decoded
// message is the same after it is encoded and decoded again, and a closed end stays closed.
#include <cstdint>

#include "net_plugin/verbs/cm/core/connection.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"

namespace pacecar::ibverbs::cm::mads_fuzz {
namespace {

constexpr uint32_t kOwn = 7;

Connection end_in(size_t state, Instant now) {
  Connection end(kOwn, Duration::from_s(10));
  if (state == 1) end.ask({}, now);
  if (state == 2) end.ask({.kind = Kind::kFind}, now);
  if (state >= 3) end.on_request({.local_id = 9});
  if (state == 4) end.answer({.kind = Kind::kReply}, now);
  if (state == 5) end.ready(now);
  if (state == 6) end.disconnect(2, now);
  if (state == 7) end.answer({.kind = Kind::kReject}, now);
  return end;
}

}  // namespace

FUZZ_TARGET(mads) {
  fuzz::Input input(data, size);
  Instant now = Instant() + Duration::from_s(1);
  Connection end = end_in(input.below(8), now);
  while (!input.empty()) {
    Mad mad = encode({.kind = static_cast<Kind>(0x10 + input.below(9)), .remote_id = kOwn});
    for (size_t changes = input.below(8); changes > 0; --changes) {
      mad[input.below(mad.size())] = input.u8();
    }
    now = now + Duration::from_ms(input.u8());
    const auto message = decode(mad);
    if (!message) continue;
    const auto again = decode(encode(*message));
    PACECAR_CHECK(again && encode(*again) == encode(*message));
    (void)decode_ip(std::span(message->private_data).first<IpHeader::kBytes>());
    const bool closed = end.state() == Connection::State::kClosed;
    const auto step = end.on_message(*message, now);
    if (step.send != nullptr) (void)encode(*step.send);
    PACECAR_CHECK(!closed || end.state() == Connection::State::kClosed);
    end.on_time(now);
  }
  return 0;
}

}  // namespace pacecar::ibverbs::cm::mads_fuzz
