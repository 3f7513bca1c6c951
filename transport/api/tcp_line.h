// The line to a peer's process over the bootstrap's TCP. Thread rule: as PeerLine (peer_watch.h).
#pragma once

#include <sys/resource.h>

#include <memory>

#include "transport/api/connections.h"
#include "transport/engine/bootstrap/bootstrap.h"

namespace pacecar {

// The bootstrap's connection, which the peer's process closes when it ends.
class TcpLine final : public PeerLine {
 public:
  explicit TcpLine(bootstrap::Socket socket) : socket_(std::move(socket)) {}
  bool ended() override { return socket_.at_end(); }

 private:
  const bootstrap::Socket socket_;
};

// Null: too few file descriptors are left to keep one open for each flow.
inline std::shared_ptr<PeerLine> line_over(bootstrap::Socket socket) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  if (static_cast<rlim_t>(socket.get()) >= files.rlim_cur / 2) return nullptr;
  return std::make_shared<TcpLine>(std::move(socket));
}

}  // namespace pacecar
