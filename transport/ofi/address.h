// OfiAddress: what a peer needs to reach a queue pair. Pure. Thread rule: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "transport/base/result.h"
#include "transport/nic/nic.h"

namespace pacecar {

struct OfiAddress {
  uint32_t provider = 0;  // the provider and its address format: ofi_provider_tag
  uint64_t secret = 0;    // of its mailbox
  uint64_t rings = 0;     // its OfiRings, as the provider addresses them
  uint64_t rings_key = 0;
  // The names of the NIC's endpoints, all of one length: first the one for control words.
  std::vector<std::vector<uint8_t>> endpoints;
};

uint32_t ofi_provider_tag(std::string_view provider);

// How many endpoints with names of such a length an address can have.
size_t max_endpoints(size_t name_bytes);
QueuePairAddress encode(const OfiAddress& address);
Result<OfiAddress> decode_ofi_address(std::span<const uint8_t> bytes);  // Errors: kPeer.

}  // namespace pacecar
