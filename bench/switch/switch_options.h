// The flags of `pacecar switch` as a configuration. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/switch/live_switch.h"
#include "transport/base/result.h"
#include "transport/base/units.h"

namespace CLI {
class App;
}

namespace pacecar {

// As on the command line. Text is not checked yet.
struct SwitchFlags {
  std::vector<std::string> ports;
  std::string rate = "1G";
  std::string buffer = "1M";
  std::string queue = "0";
  std::string ecn;
  bool ecn_at_dequeue = false;
  std::string delay = "1us";
  std::string nic_queue = "4M";
  int control_tc = 184;
  std::string sample = "100us";
  LiveSwitchConfig config;  // what other flags set
  double seconds = 0;       // 0: until interrupted
  double interval = 0;      // 0: none
  bool spin = false;
  std::string json_file;
  std::string queue_log;
  bool quiet = false;
  bool no_color = false;
};

void add_switch_flags(CLI::App& app, SwitchFlags& flags);

// The names of ports on DPDK devices begin with this.
inline constexpr std::string_view kDpdkPort = "dpdk:";

struct SwitchPlan {
  std::vector<std::string> interfaces;  // or "dpdk:DEVICE"
  std::vector<std::string> arguments;   // of the DPDK devices
  std::vector<Rate> rates;
  LiveSwitchConfig config;
};
// Errors: kInvalidArgument, naming the flag.
Result<SwitchPlan> make_switch_plan(const SwitchFlags& flags);

}  // namespace pacecar
