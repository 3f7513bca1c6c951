#include "bench/nccl/setup_bench.h"

#include <dirent.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/perf/clock.h"

namespace pacecar::nccl {
namespace {

using perf::steady_now;

constexpr size_t kListeners = 64;  // at once: each holds a descriptor
constexpr size_t kMessageBytes = 64;

void connect(const Host& host, std::span<Ends> ends) {
  std::vector<Listening> listening(ends.size());
  for (Listening& one : listening) one = host.listen();
  poll_until("connections", [&] {
    bool ready = true;
    for (size_t i = 0; i < ends.size(); ++i) {
      ready &= host.try_both(listening[i].handle, listening[i].comm, &ends[i]);
    }
    return ready;
  });
  for (const Listening& one : listening) host.close_listen(one.comm);
}

void pass_messages(const Host& host, const std::vector<Ends>& ends) {
  for (const Ends& one : ends) {
    const Buffer from(host, one.send, kMessageBytes);
    const Buffer to(host, one.receive, kMessageBytes);
    void* const receiving = host.receive(one.receive, to.whole());
    host.finish(receiving, host.send(one.send, from.whole()));
  }
}

size_t open_descriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  size_t count = 0;
  while (folder != nullptr && readdir(folder.get()) != nullptr) ++count;
  return count;
}

size_t resident_kb() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    size_t kb = 0;
    if (word == "VmRSS:" && status >> kb) return kb;
  }
  return 0;
}

}  // namespace

nlohmann::json measure_setup(const Host& host, size_t connections, size_t rounds) {
  Duration connecting;
  Duration closing;
  size_t descriptors = 0;
  size_t resident = 0;
  for (size_t round = 0; round < rounds; ++round) {
    std::vector<Ends> ends(connections);
    const Instant begin = steady_now();
    for (size_t first = 0; first < connections; first += kListeners) {
      connect(host, std::span(ends).subspan(first, std::min(kListeners, connections - first)));
    }
    connecting = connecting + (steady_now() - begin);
    pass_messages(host, ends);
    const Instant end = steady_now();
    for (const Ends& one : ends) host.close(one);
    closing = closing + (steady_now() - end);
    if (round == 0) {
      descriptors = open_descriptors();
      resident = resident_kb();
    }
  }
  const auto made = static_cast<double>(connections * rounds);
  return {
      {"test", "setup"},
      {"connections", connections},
      {"rounds", rounds},
      {"connects_per_s", made / connecting.seconds()},
      {"closes_per_s", made / closing.seconds()},
      {"descriptors_grown",
       static_cast<int64_t>(open_descriptors()) - static_cast<int64_t>(descriptors)},
      {"resident_kb", resident_kb()},
      {"resident_kb_grown", static_cast<int64_t>(resident_kb()) - static_cast<int64_t>(resident)}};
}

}  // namespace pacecar::nccl
