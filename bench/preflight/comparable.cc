#include <string>

#include "bench/preflight/checks.h"
#include "bench/preflight/report.h"
#include "transport/base/printable.h"

namespace pacecar::preflight {
namespace {

class ComparedFacts {
 public:
  void add(const std::string& name, const std::string& value) {
    if (!value.empty()) facts_[printable(name)] = printable(value);
  }
  std::map<std::string, std::string> take() { return std::move(facts_); }

 private:
  std::map<std::string, std::string> facts_;
};

void add_device(const Facts& facts, const RdmaDevice& device, ComparedFacts& compared) {
  compared.add(device.name + " firmware", device.firmware);
  for (const RdmaPort& port : device.ports) {
    compared.add(port.name() + " rate", port.rate);
    compared.add(port.name() + " state", port.state);
    const Gid* gid = port.ethernet ? choose_gid(port) : nullptr;
    if (gid != nullptr) compared.add(port.name() + " GID index", std::to_string(gid->index));
  }
  if (const PciDevice* pci = facts.pci_device(device.pci_address)) {
    compared.add(device.name + " PCIe speed", pci->link_speed);
  }
}

}  // namespace

std::map<std::string, std::string> comparable(const Facts& facts) {
  ComparedFacts compared;
  compared.add("kernel", facts.software.kernel);
  compared.add("system", facts.software.os);
  compared.add("pacecar", facts.settings.version);
  compared.add("NVIDIA driver", facts.software.nvidia_driver);
  compared.add("NCCL", facts.software.nccl);
  for (const auto& [governor, cpus] : facts.cpu.governors) compared.add("CPU governor", governor);
  for (const RdmaDevice& device : facts.rdma) add_device(facts, device, compared);
  for (const Netdev& netdev : facts.netdevs) {
    if (netdev.up && netdev.name != "lo") {
      compared.add(netdev.name + " MTU", std::to_string(netdev.mtu));
    }
  }
  return compared.take();
}

}  // namespace pacecar::preflight
