// The devices of a process as its connections see them: the requested one, and its replacements if
// the peer has no NIC on its networks.
//
// Thread rule: any; Replacements has a lock of its own.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "transport/api/connections.h"
#include "transport/api/lane_list.h"

namespace pacecar {

class BondKeeper;

// A NIC, or several bonded ones, as the end of a connection.
struct OwnDevice {
  size_t number = 0;  // of Context::nics
  std::string name;
  // It may be a replacement: it takes GPU memory as the requested device does, on which the
  // application relies.
  bool suits = true;
  std::vector<OwnNic> nics;
};

// Logs the use of replacements, once for each device and peer.
class Replacements {
 public:
  // `peer` is "host:port".
  void log_use(const OwnDevice& requested, const OwnDevice& used, const std::string& peer);

 private:
  std::mutex mutex_;
  std::set<std::string> reported_;  // bounded
};

struct OwnDevices {
  std::vector<OwnDevice> devices;  // the requested one, then the others
  std::shared_ptr<BondKeeper> keeper;
  std::shared_ptr<Replacements> replacements;

  const OwnDevice& requested() const { return devices.front(); }
};

// All usable devices, and their indices in `own`.
struct UsableDevices {
  std::vector<NamedDevice> named;
  std::vector<size_t> places;
};
UsableDevices usable_devices(const OwnDevices& own);

// "node1 (pid 12) has mlx5_0 (roce) and soft:udp:eth0 (soft)"
std::string describe_process(const OwnDevices& own);
// `connecting` describes the other side, `listening` this one.
std::string no_common_network(const std::string& connecting, const std::string& listening);

}  // namespace pacecar
