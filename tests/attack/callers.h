// Connections to the TCP ports that listen, which send random bytes, part of a handshake or
// nothing. One thread.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "transport/base/prng.h"

namespace pacecar::attack {

class Callers {
 public:
  // `tables`: files such as /proc/PID/net/tcp, which list the ports that listen.
  Callers(std::vector<std::string> tables, uint64_t seed);
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;
  ~Callers();

  void read_tables();
  bool has_ports() const { return !ports_.empty(); }
  // Opens a connection, and closes the oldest where there are too many. False: the connection could
  // not be begun.
  bool connect_one();

 private:
  struct Caller {
    int fd;
    std::vector<uint8_t> bytes;  // to send once connected; empty: sent
  };
  std::vector<uint8_t> draw_bytes();
  void disconnect(size_t caller);
  void send_pending();

  const std::vector<std::string> tables_;
  std::vector<sockaddr_in> ports_;
  std::deque<Caller> callers_;
  Prng prng_;
};

}  // namespace pacecar::attack
