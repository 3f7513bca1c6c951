// Two processes, a sender and a receiver, that exchange messages over a net plugin's own table,
// without NCCL and without a GPU. Either end sends its error to the other before it throws
// std::runtime_error. Thread rule: one thread per process.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/perf/control_channel.h"
#include "bench/perf/control_listener.h"
#include "net_plugin/host/host.h"

namespace pacecar::nccl {

struct PairPlan {
  std::string plugin;  // path
  int version = 0;     // of its table; 0: the newest
  int device = 0;
  uint64_t size = 1U << 20;  // of a message in a stream, bytes
  uint64_t in_flight = 8;    // messages
  double seconds = 3;
  bool latency = false;    // a ping-pong instead of a stream
  uint64_t ping_size = 8;  // of a message in a ping-pong, bytes
  bool verbose = false;    // print what the plugin logs
};

// The plugin, loaded and started in this process.
std::unique_ptr<Host> start_host(const PairPlan& plan);
// The schema's version, the table and the device, for the figures.
nlohmann::json described(const Host& host);
// The receiving process. The sender decides what is measured.
void serve_pair(const PairPlan& plan, perf::ControlChannel channel);
// The sending process. Returns the figures; their names end in their units.
nlohmann::json drive_pair(const PairPlan& plan, perf::ControlChannel channel);
perf::ControlChannel connect_pair(const std::string& host, uint16_t port);
// Waits for the peer's connect_pair.
perf::ControlChannel await_pair(perf::ControlListener& listener);
// Runs both processes on this host.
nlohmann::json run_pair(const PairPlan& plan);

}  // namespace pacecar::nccl
