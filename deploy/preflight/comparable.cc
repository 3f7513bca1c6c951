#include <string>

#include "deploy/preflight/checks.h"
#include "deploy/preflight/report.h"
#include "transport/base/printable.h"

namespace pacecar::preflight {
namespace {

class Told {
 public:
  void add(const std::string& name, const std::string& value) {
    if (!value.empty()) facts_[printable(name)] = printable(value);
  }
  std::map<std::string, std::string> take() { return std::move(facts_); }

 private:
  std::map<std::string, std::string> facts_;
};

void tell_device(const Facts& facts, const RdmaDevice& device, Told& told) {
  told.add(device.name + " firmware", device.firmware);
  for (const RdmaPort& port : device.ports) {
    told.add(port.name() + " rate", port.rate);
    told.add(port.name() + " state", port.state);
    const Gid* gid = port.ethernet ? choose_gid(port) : nullptr;
    if (gid != nullptr) told.add(port.name() + " GID index", std::to_string(gid->index));
  }
  if (const PciDevice* pci = facts.pci_device(device.pci_address)) {
    told.add(device.name + " PCIe speed", pci->link_speed);
  }
}

}  // namespace

std::map<std::string, std::string> comparable(const Facts& facts) {
  Told told;
  told.add("kernel", facts.software.kernel);
  told.add("system", facts.software.os);
  told.add("pacecar", facts.settings.version);
  told.add("NVIDIA driver", facts.software.nvidia_driver);
  told.add("NCCL", facts.software.nccl);
  for (const auto& [governor, cpus] : facts.cpu.governors) told.add("CPU governor", governor);
  for (const RdmaDevice& device : facts.rdma) tell_device(facts, device, told);
  for (const Netdev& netdev : facts.netdevs) {
    if (netdev.up && netdev.name != "lo") {
      told.add(netdev.name + " MTU", std::to_string(netdev.mtu));
    }
  }
  return told.take();
}

}  // namespace pacecar::preflight
