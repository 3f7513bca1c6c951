// Connects two messengers as the bootstrap does, without its sockets.
#pragma once

#include "transport/base/check.h"
#include "transport/message/messenger.h"

namespace pacecar::test {

struct ConnectionPair {
  ConnectionId send = 0;
  ConnectionId receive = 0;
};

inline NicIdentity identity_of_host(size_t host) {
  NicIdentity identity{};
  identity[0] = static_cast<uint8_t>(host + 1);
  return identity;
}

inline ConnectionPair connect_messengers(Messenger& from, Messenger& to, size_t to_host,
                                         Instant now, uint32_t weight = 0) {
  const auto offered = from.open_send(identity_of_host(to_host), now, weight).value();
  const auto answered = to.open_receive(offered.offer, now).value();
  PACECAR_CHECK(from.finish_send(offered.connection, answered.answer, now).has_value());
  return {offered.connection, answered.connection};
}

}  // namespace pacecar::test
