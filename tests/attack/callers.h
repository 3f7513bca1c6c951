// Connections to whatever TCP ports are listening, which say nonsense, half of something or
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
  // Files as /proc/PID/net/tcp, which tell what listens there.
  Callers(std::vector<std::string> tables, uint64_t seed);
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;
  ~Callers();

  // Reads the files again.
  void look();
  bool sees_ports() const { return !ports_.empty(); }
  // One more; the one that has been there the longest leaves where there are too many. False where
  // the connection did not even begin.
  bool call();

 private:
  struct Caller {
    int fd;
    std::vector<uint8_t> says;  // once it is connected
  };
  std::vector<uint8_t> something();
  void leave(size_t caller);
  void speak();

  const std::vector<std::string> tables_;
  std::vector<sockaddr_in> ports_;
  std::deque<Caller> callers_;
  Prng prng_;
};

}  // namespace pacecar::attack
