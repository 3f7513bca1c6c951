// OfiEndpoint: an endpoint of a libfabric NIC, with the addresses of the peers to which it writes.
// An endpoint is costly (tcp;ofi_rxm takes 67 MB), so all queue pairs share few.
//
// Thread rule: one thread at a time.
#pragma once

#include <rdma/fi_endpoint.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"
#include "transport/ofi/domain.h"

namespace pacecar {

// A contiguous part of a write.
struct OfiPart {
  const void* data = nullptr;
  Bytes length = 0;
  void* descriptor = nullptr;  // of the local memory, if the provider needs it registered
  uint64_t place = 0;          // in the peer's memory, as the provider addresses it
  uint64_t key = 0;
};

// One write operation; its memory outlives it.
struct OfiWrite {
  OfiPart part;
  OfiPart behind;         // placed after the first part; length 0: none
  bool from_gpu = false;  // memory that no processor can copy
  fi_addr_t peer = FI_ADDR_UNSPEC;
  bool answered = true;  // completes when the data is in place; else when it is copied to the peer
  void* context = nullptr;
};

class OfiEndpoint {
 public:
  // `domain` outlives it. Errors: what the provider refuses.
  static Result<std::unique_ptr<OfiEndpoint>> open(const OfiDomain& domain);

  fid_ep* endpoint() const { return endpoint_.get(); }
  // Its address, for peers.
  std::span<const uint8_t> name() const { return name_; }

  // A peer is removed when remove_peer() has been called as often as add_peer(). Errors: kPeer for
  // an invalid address.
  Result<fi_addr_t> add_peer(std::span<const uint8_t> name);
  void remove_peer(std::span<const uint8_t> name);

  // A peer's address as text.
  std::string text_of(std::span<const uint8_t> name) const;

  // Posts a write. Returns 0 or a negative error; -FI_EAGAIN: try again later.
  int write(const OfiWrite& write) const;

 private:
  explicit OfiEndpoint(const OfiDomain& domain) : domain_(domain) {}

  struct Peer {
    fi_addr_t address = FI_ADDR_UNSPEC;
    uint32_t users = 0;
  };

  const OfiDomain& domain_;
  FidHandle<fid_av> addresses_;
  FidHandle<fid_ep> endpoint_;
  std::vector<uint8_t> name_;
  std::map<std::vector<uint8_t>, Peer> peers_;
};

}  // namespace pacecar
