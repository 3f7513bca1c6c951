#include "bench/nccl/setup_bench.h"

#include <dirent.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/nccl/message_slots.h"
#include "bench/perf/clock.h"

namespace pacecar::nccl {
namespace {

using perf::steady_now;

constexpr size_t kListeners = 64;  // at once: each holds a descriptor
constexpr size_t kMessageBytes = 64;
constexpr Duration kPatience = Duration::from_s(60);

struct Ends {
  void* send = nullptr;
  void* receive = nullptr;
};

// Until all of `step` is done.
template <typename Step>
void poll(const Step& step) {
  const Instant deadline = steady_now() + kPatience;
  while (!step()) {
    if (steady_now() > deadline) throw std::runtime_error("connections take more than a minute");
    sched_yield();
  }
}

void connect(const Plugin& plugin, std::span<Ends> ends) {
  std::vector<HandleBytes> handles(ends.size());
  std::vector<void*> listening;
  for (HandleBytes& handle : handles) listening.push_back(value_or_throw(plugin.listen(&handle)));
  poll([&] {
    bool ready = true;
    for (size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].send == nullptr) ends[i].send = value_or_throw(plugin.try_connect(handles[i]));
      if (ends[i].receive == nullptr) {
        ends[i].receive = value_or_throw(plugin.try_accept(listening[i]));
      }
      ready = ready && ends[i].send != nullptr && ends[i].receive != nullptr;
    }
    return ready;
  });
  for (void* const each : listening) value_or_throw(plugin.close_listen(each));
}

void pass_messages(const Plugin& plugin, const std::vector<Ends>& ends) {
  for (const Ends& one : ends) {
    const MessageSlots from(plugin, one.send, kMessageBytes, 1);
    const MessageSlots to(plugin, one.receive, kMessageBytes, 1);
    void* receiving = nullptr;
    void* sending = nullptr;
    poll([&] { return (receiving = to.receive(0)) != nullptr; });
    poll([&] { return (sending = from.send(0, kMessageBytes)) != nullptr; });
    size_t bytes = 0;
    poll([&] { return from.test(sending, &bytes); });
    poll([&] { return to.test(receiving, &bytes); });
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

nlohmann::json measure_setup(const Plugin& plugin, size_t connections, size_t rounds) {
  Duration connecting;
  Duration closing;
  size_t descriptors = 0;
  size_t resident = 0;
  for (size_t round = 0; round < rounds; ++round) {
    std::vector<Ends> ends(connections);
    const Instant begin = steady_now();
    for (size_t first = 0; first < connections; first += kListeners) {
      connect(plugin, std::span(ends).subspan(first, std::min(kListeners, connections - first)));
    }
    connecting = connecting + (steady_now() - begin);
    pass_messages(plugin, ends);
    const Instant end = steady_now();
    for (const Ends& one : ends) {
      value_or_throw(plugin.close_send(one.send));
      value_or_throw(plugin.close_receive(one.receive));
    }
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
