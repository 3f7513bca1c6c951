// The devices of a process as its connections see them: the requested one, and its replacements if
// the peer has no NIC on its networks. Thread rule: any; Notices has a lock of its own.
#pragma once

#include <map>
#include <memory>
#include <mutex>
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
inline const OwnNic& nic_of_lane(const OwnDevice& device, size_t lane) {
  return device.nics[lane % device.nics.size()];
}

// Log lines that all connections of the process share: each is written at most once a minute.
class Notices {
 public:
  // The use of a replacement, for each device and peer. `peer` is "host:port".
  void log_use(const OwnDevice& requested, const OwnDevice& used, const std::string& peer);
  // That nobody calls a listener (BootstrapListener::lonely).
  void log_lonely(const OwnDevice& device, const std::string& address, Instant now);
  void log_unreached(const OwnDevice& device, const std::string& peer, const std::string& line,
                     Instant now);  // That a peer, "host:port", cannot be reached so far.
  // That packets of a NIC to `peer` do not leave by its interface: Linux routes by destination, so
  // of several NICs in one subnet only one sends. `peer` is "address:port"; empty: unknown.
  void log_route(const OwnNic& nic, const std::string& peer, Instant now);

 private:
  bool is_first(const std::string& line, Instant now);

  std::mutex mutex_;
  std::map<std::string, Instant> reported_;  // when; bounded
};

struct OwnDevices {
  std::vector<OwnDevice> devices;  // the requested one, then the others
  std::shared_ptr<BondKeeper> keeper;
  std::shared_ptr<Notices> notices;

  const OwnDevice& requested() const { return devices.front(); }
};

// The device with these of its NICs, in this order.
OwnDevice with_nics(const OwnDevice& device, std::span<const size_t> members);
// Whether two NICs are of the same networks (NicCaps::networks).
bool same_kind(const OwnNic& one, const OwnNic& other);

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
std::string no_common_subnet(const OwnDevices& own, const Address& listener);
// The addresses of the NICs that are of the requested one's kind.
std::vector<NamedAddress> addresses_of(const OwnDevices& own);

}  // namespace pacecar
