// Recognizes a TCP socket that is connected to itself. A socket that connects to a port of its own
// host at which nobody listens may get just that port as its local one: TCP then connects it to
// itself, without an error (simultaneous open, RFC 9293, 3.5).
#pragma once

#include <sys/socket.h>

#include <cstring>

namespace pacecar {

// Whether a TCP socket is its own peer. Its port is free for a listener once it is closed.
inline bool is_self_connection(int fd) {
  sockaddr_storage own{};
  sockaddr_storage peer{};
  socklen_t own_bytes = sizeof own;
  socklen_t peer_bytes = sizeof peer;
  const bool self = getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) == 0 &&
                    getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_bytes) == 0 &&
                    own_bytes == peer_bytes && std::memcmp(&own, &peer, own_bytes) == 0;
  const linger reset{.l_onoff = 1, .l_linger = 0};  // without TIME_WAIT
  if (self) (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  return self;
}

}  // namespace pacecar
