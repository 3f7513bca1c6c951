// The flags of `pacecar switch`.
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

struct SwitchFlags {
  std::vector<std::string> ports;  // as on the command line; make_switch_ports() checks them
  Rate rate = Rate::from_gbps(1);  // of the ports that name none
  LiveSwitchConfig config{.switches = {.buffer_bytes = 1 << 20}, .delay = Duration::from_us(1)};
  double seconds = 0;   // 0: until interrupted
  double interval = 0;  // 0: none
  bool spin = false;
  std::string json_file;
  std::string queue_log;
  bool quiet = false;
  bool no_color = false;
};

// The names of ports on DPDK devices begin with this.
inline constexpr std::string_view kDpdkPort = "dpdk:";

struct SwitchPort {
  std::string name;       // of an interface, or "dpdk:DEVICE"
  std::string arguments;  // of a DPDK device
  Rate rate;
};

void add_switch_flags(CLI::App& app, SwitchFlags& flags);

// Two or more. Errors: kInvalidArgument, naming the flag.
Result<std::vector<SwitchPort>> make_switch_ports(const SwitchFlags& flags);

}  // namespace pacecar
