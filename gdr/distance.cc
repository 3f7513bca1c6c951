#include "gdr/distance.h"

#include <algorithm>
#include <fstream>
#include <vector>

namespace pacecar {
namespace {

using PciPath = std::vector<std::string_view>;

// From the host bridge ("pci0000:00") to the device; empty if it is not on PCI. Folders of drivers
// below the device (net/eth0) are left out.
PciPath pci_path_of(std::string_view path) {
  PciPath hops;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    begin = end + 1;
    const bool bridge = part.starts_with("pci") && part.find(':') != part.npos;
    const bool function = std::ranges::count(part, ':') == 2 && part.find('.') != part.npos;
    if (bridge) hops = {part};
    if (function && !hops.empty()) hops.push_back(part);
  }
  return hops.size() > 1 ? hops : PciPath();
}

// -1 if unknown, as on systems with one node only.
int numa_node(const std::filesystem::path& folder) {
  std::ifstream file(folder / "numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

}  // namespace

std::string_view to_string(PciDistance distance) {
  constexpr std::string_view kNames[] = {"PIX", "PXB", "PHB", "NODE", "SYS"};
  return kNames[static_cast<size_t>(distance)];
}

std::optional<PciDistance> pci_distance(std::string_view one, std::string_view other,
                                        bool same_node) {
  const PciPath a = pci_path_of(one);
  const PciPath b = pci_path_of(other);
  if (a.empty() || b.empty()) return std::nullopt;
  const auto split = std::ranges::mismatch(a, b);
  const auto common = static_cast<size_t>(split.in1 - a.begin());
  if (common == 0) return same_node ? PciDistance::kNode : PciDistance::kSys;
  if (common == 1) return PciDistance::kPhb;
  // A switch adds two bridges to a path: the upstream port, which both devices share, and a
  // downstream port for each device.
  constexpr size_t kBehindOneSwitch = 2;
  const size_t apart = std::max(a.size(), b.size()) - common;
  return apart <= kBehindOneSwitch ? PciDistance::kPix : PciDistance::kPxb;
}

std::optional<PciDistance> gpu_distance(const std::string& gpu_bus_id, const std::string& nic_path,
                                        const std::filesystem::path& root) {
  std::error_code missing;
  const auto gpu = std::filesystem::canonical(root / "sys/bus/pci/devices" / gpu_bus_id, missing);
  if (missing || nic_path.empty()) return std::nullopt;
  const std::filesystem::path nic = root / std::filesystem::path(nic_path).relative_path();
  return pci_distance(gpu.string(), nic.string(), numa_node(gpu) == numa_node(nic));
}

}  // namespace pacecar
