// fi_getinfo: the provider's capabilities and limits, for each NIC.
#pragma once

#include <rdma/fabric.h>

#include <optional>
#include <string>

#include "net_plugin/libfabric/core/names.h"

namespace pacecar::fabric {

inline constexpr const char* kProviderName = "pacecar";
inline constexpr size_t kMaxInjectBytes = 4096;  // bytes
inline constexpr size_t kMaxOperations = 4096;   // of an endpoint, in each direction
inline constexpr size_t kMaxIov = 4;
inline constexpr uint64_t kMaxMessageBytes = uint64_t{1} << 35;
inline constexpr uint64_t kMrModes = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;

int get_info(uint32_t version, const char* node, const char* service, uint64_t flags,
             const fi_info* hints, fi_info** info);

int family_of(const Address& address);  // AF_INET or AF_INET6.

// The device's address of this family (AF_UNSPEC: the preferred one); else the host's first.
std::optional<Address> address_of_device(const std::string& device, int family);

// `list`, a value of PACECAR_NICS, without NICs on libfabric itself; nullopt: none is left.
std::optional<std::string> own_nics(const std::string& list);

// getaddrinfo() for one address of this family (AF_UNSPEC: IPv4 or IPv6). nullopt: there is none.
std::optional<Address> resolve(const char* node, const char* service, int family, bool passive,
                               bool numeric);

}  // namespace pacecar::fabric
