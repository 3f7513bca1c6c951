// The devices of a process as its connections see them: the one that was asked for, and those that
// stand in for it where the peer has no NIC of its networks.
//
// Thread rule: any; StandIns has a lock of its own.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "transport/api/connections.h"
#include "transport/api/lane_list.h"

namespace pacecar {

class BondKeeper;

// What a connection begins or ends at: one NIC, or several that stand for one.
struct OwnDevice {
  size_t number = 0;  // in Context::nics
  std::string name;
  // May stand in: it takes GPU memory as the one that was asked for does, of which the application
  // has been told.
  bool suits = true;
  std::vector<OwnNic> nics;
};

// Says once of each device and peer that another device is used than was asked for.
class StandIns {
 public:
  // `peer` is "host:port".
  void log_use(const OwnDevice& asked, const OwnDevice& used, const std::string& peer);

 private:
  std::mutex mutex_;
  std::set<std::string> reported_;  // bounded
};

struct OwnDevices {
  std::vector<OwnDevice> devices;  // the one that was asked for, then the others
  std::shared_ptr<BondKeeper> keeper;
  std::shared_ptr<StandIns> stand_ins;

  const OwnDevice& asked() const { return devices.front(); }
};

NamedDevice named(const OwnDevice& device);
// Likewise all that may be used, and their places in `own`.
struct UsableDevices {
  std::vector<NamedDevice> named;
  std::vector<size_t> places;
};
UsableDevices usable_devices(const OwnDevices& own);

// "node1 (pid 12) has mlx5_0 (roce) and soft:udp:eth0 (soft)"
std::string describe_process(const OwnDevices& own);
// `connecting` is the other side's, `listening` this one's.
std::string no_common_network(const std::string& connecting, const std::string& listening);

}  // namespace pacecar
