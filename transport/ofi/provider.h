// libfabric: its entry points, and its providers on this machine. Thread rule: any.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar {

// The entry points, loaded at run time when a libfabric NIC is named. All other calls go through
// the objects' own tables of functions.
class OfiLibrary {
 public:
  // Loads the library at the first call; it stays loaded. Some of its dependencies install signal
  // handlers: the program's own are restored. Errors: kUnavailable.
  static Result<const OfiLibrary*> load(const std::string& file = "libfabric.so.1");

  // As fi_getinfo, with signals as in load(). `hints` are not changed.
  int getinfo(const fi_info* hints, fi_info** infos) const;
  // As fi_endpoint, with signals as in load().
  int endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint) const;
  std::string version() const;  // "1.17"
  // Whether it registers dma-bufs of GPUs: library and headers are of version 1.20 or later.
  bool takes_dmabufs() const;

  decltype(&fi_freeinfo) freeinfo = nullptr;
  decltype(&fi_dupinfo) dupinfo = nullptr;  // of nullptr: a new one
  decltype(&fi_fabric) fabric = nullptr;
  decltype(&fi_strerror) strerror = nullptr;

 private:
  std::string resolve(void* library);

  decltype(&fi_getinfo) getinfo_ = nullptr;
  decltype(&fi_version) version_ = nullptr;
};

// Owning pointers for the objects of libfabric. An object's parents must outlive it: mind the order
// of members. A failure to close means that the device is gone, and with it the object.
struct FidDeleter {
  template <typename T>
  void operator()(T* object) const {
    fi_close(&object->fid);
  }
};
template <typename T>
using FidHandle = std::unique_ptr<T, FidDeleter>;

struct InfoDeleter {
  const OfiLibrary* libfabric = nullptr;
  void operator()(fi_info* info) const { libfabric->freeinfo(info); }
};
using InfoHandle = std::unique_ptr<fi_info, InfoDeleter>;

// How the peer is notified of a write with immediate.
enum class OfiNotification : uint8_t {
  kWithWrite,      // by a message that is the last part of the write
  kAfterWrite,     // by a message after the write: writes of an endpoint are placed in order
  kAfterDelivery,  // by a message once the write has been acknowledged
};

// A provider's attributes, as far as they matter here.
struct OfiTraits {
  // The most bytes of a write, even if the provider allows more.
  static constexpr Bytes kMaxWrite = 4 << 20;

  bool virtual_addresses = false;  // peers address memory by address; otherwise by offset
  bool endpoint_memory = false;    // memory is registered with one endpoint
  bool ordered = false;            // writes of an endpoint to one peer are placed in order
  bool connects = false;           // writes over a connection to each peer
  bool device = false;             // a device reads and writes the memory, not a processor
  bool gpu_memory = false;         // FI_HMEM, as dma-buf
  uint64_t key_mask = 0;           // of the keys that we choose
  size_t queue = 0;                // operations that an endpoint takes, at least
  Bytes inject = 0;                // writes of at most this many bytes are copied when posted
  Bytes max_write = 0;
  Bytes mtu = 0;
  Rate speed;  // 0: unknown
  // Never completion data: any peer could name any queue pair in it.
  OfiNotification notification = OfiNotification::kAfterDelivery;
};

OfiTraits traits_of(const fi_info& info);
// Whether its keys and writes have sizes that Pacecar can use, and it is not shared memory, whose
// lock a killed process leaves locked.
bool is_usable(const fi_info& info);

struct OfiProvider {
  std::string name;    // "tcp;ofi_rxm"
  std::string domain;  // "eth0"
  OfiTraits traits;
  InfoHandle info;
};

// All providers that Pacecar can use, one entry per domain. Errors: kUnavailable (no libfabric).
Result<std::vector<OfiProvider>> list_ofi_providers();

// `name` is that of a provider ("tcp;ofi_rxm") or of its lowest layer ("tcp"). Without `domain`,
// the first domain that reaches other hosts is chosen, or else the first. `gpu_memory`: with
// FI_HMEM if available. Errors: kUnavailable (no libfabric), kInvalidArgument (shared memory),
// kNotFound (no such provider or domain here that Pacecar can use).
Result<OfiProvider> choose_ofi_provider(std::string_view name, std::string_view domain,
                                        bool gpu_memory = false);

// The provider's usual name: "tcp" of "tcp;ofi_rxm".
std::string_view lowest_layer(std::string_view provider);

}  // namespace pacecar
