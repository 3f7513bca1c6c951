// What the provider can do, and for which NICs: fi_getinfo.
#pragma once

#include <rdma/fabric.h>

#include <optional>
#include <string>

#include "net_plugin/libfabric/core/names.h"
#include "transport/api/pacecar.hpp"

namespace pacecar::fabric {

inline constexpr const char* kProviderName = "pacecar";
inline constexpr size_t kMostInjected = 4096;    // bytes
inline constexpr size_t kMostOperations = 4096;  // of an endpoint, each way
inline constexpr size_t kMostIov = 4;
inline constexpr uint64_t kMostMessageBytes = uint64_t{1} << 35;
inline constexpr uint64_t kMrModes = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

int get_info(uint32_t version, const char* node, const char* service, uint64_t flags,
             const fi_info* hints, fi_info** info);

// Where a NIC is reached: its own address; the host's first one, where it has none of the family.
std::optional<Name> address_of_nic(const NicInfo& nic, int family);

// The value of PACECAR_NICS without NICs on libfabric itself; nullopt: it names no others.
std::optional<std::string> own_nics(const std::string& list);

// Node and service as getaddrinfo() takes them, but numbers and names only of `family` (AF_UNSPEC:
// either). nullopt: there is no such address.
std::optional<Name> resolve(const char* node, const char* service, int family, bool passive,
                            bool numeric);

}  // namespace pacecar::fabric
