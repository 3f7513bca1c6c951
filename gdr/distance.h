// The PCIe distance between a GPU and a NIC, from their paths in sysfs. The names are those that
// NCCL and `nvidia-smi topo -m` print.
//
// Thread rule: any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace pacecar {

enum class PciDistance : uint8_t {
  kPix,   // behind one switch
  kPxb,   // behind several switches below one root port
  kPhb,   // below one host bridge
  kNode,  // below host bridges of one NUMA node
  kSys,   // across the processors' link
};

std::string_view to_string(PciDistance distance);

// Of two devices, by their folders below /sys/devices/ with links resolved. `same_node`: both are
// of one NUMA node. nullopt for a device that is not on PCI.
std::optional<PciDistance> pci_distance(std::string_view one, std::string_view other,
                                        bool same_node);

// Of a GPU, such as 0000:3b:00.0, and a NIC's folder. Reads sysfs below `root`, which is "/" except
// in tests. nullopt if either device does not exist.
std::optional<PciDistance> gpu_distance(const std::string& gpu_bus_id, const std::string& nic_path,
                                        const std::filesystem::path& root = "/");

}  // namespace pacecar
