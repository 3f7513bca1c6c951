// The providers of libfabric on this machine, and what each can do for Pacecar.
//
// Thread rule: any.
#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/ofi/library.h"

namespace pacecar {

struct InfoDeleter {
  const OfiLibrary* libfabric = nullptr;
  void operator()(fi_info* info) const { libfabric->freeinfo(info); }
};
using InfoHandle = std::unique_ptr<fi_info, InfoDeleter>;

// How the peer learns that a write with immediate is there.
enum class OfiNotification : uint8_t {
  kWithWrite,      // by a message that is the last part of the write
  kAfterWrite,     // by a message behind the write: writes of an endpoint land in order
  kAfterDelivery,  // by a message once the write has been acknowledged
};

// What follows from what a provider says of itself.
struct OfiTraits {
  // A write of ours is no longer, whatever the provider takes.
  static constexpr Bytes kMaxWrite = 4 << 20;

  bool virtual_addresses = false;  // peers name memory by address; else by its offset
  bool provider_keys = false;      // the provider chooses the keys of memory; else we do
  bool local_keys = false;         // local memory must be registered, too
  bool endpoint_memory = false;    // memory is registered with one endpoint
  bool ordered = false;            // writes of an endpoint to one peer land in order
  bool host_only = false;          // reaches this host only
  bool device = false;             // a device reads and writes the memory, not a processor
  bool gpu_memory = false;         // FI_HMEM, as dma-buf
  uint64_t key_mask = 0;           // of the keys that we choose
  Bytes inject = 0;                // bytes that are copied when they are posted
  Bytes word = 0;                  // bytes of a write that lies with the peer when it is posted
  Bytes max_write = 0;
  Bytes mtu = 0;
  Rate speed;  // 0: unknown
  // Never by completion data: any peer could name any queue pair there.
  OfiNotification notification = OfiNotification::kAfterDelivery;
};

OfiTraits traits_of(const fi_info& info);
// What it lacks that Pacecar needs, as the end of a sentence that begins with "it"; empty: nothing.
std::string flaw_of(const fi_info& info);

struct OfiProvider {
  std::string name;    // "tcp;ofi_rxm"
  std::string domain;  // "eth0"
  std::string flaw;    // flaw_of()
  OfiTraits traits;
  InfoHandle info;
};

// All that have reliable datagrams, one for each of their domains. Errors: kUnavailable (there is
// no libfabric).
Result<std::vector<OfiProvider>> list_ofi_providers();

// `name` is that of a provider ("tcp;ofi_rxm") or of its lowest layer ("tcp"); without a domain the
// first one is taken that leaves the host, or else the first. `gpu_memory`: with FI_HMEM where it
// is to be had. Errors: kUnavailable (no libfabric),
// kNotFound (no such provider or domain here), kInvalidArgument (it lacks something).
Result<OfiProvider> choose_ofi_provider(std::string_view name, std::string_view domain,
                                        bool gpu_memory = false);

// As the user of such a provider knows it: "tcp" of "tcp;ofi_rxm".
std::string_view lowest_layer(std::string_view provider);

}  // namespace pacecar
