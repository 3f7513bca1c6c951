// How far a GPU and a NIC are from each other, by their places in sysfs. The names are those that
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

// Of two devices given by their folders below /sys/devices/, links resolved. `same_node` says
// whether they are of one NUMA node. nullopt for a device that is not on PCI.
std::optional<PciDistance> pci_distance(std::string_view one, std::string_view other,
                                        bool same_node);

// Of a GPU, as 0000:3b:00.0, and a NIC's folder; reads sysfs below `root`. nullopt when either is
// not there.
std::optional<PciDistance> gpu_distance(const std::string& gpu_bus_id, const std::string& nic_path,
                                        const std::filesystem::path& root = "/");

}  // namespace pacecar
