// OfiEndpoint: an endpoint of a libfabric NIC, with the addresses of the peers to which it writes.
// OfiEndpoints: all endpoints of a NIC, the first for control words, the others for data. They are
// costly (tcp;ofi_rxm: 67 MB), so all queue pairs share few. Thread rule: one thread at a time.
#pragma once

#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"
#include "transport/ofi/address.h"
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

// One write operation, which completes when the data is in place; its memory outlives it.
struct OfiWrite {
  OfiPart part;
  OfiPart behind;         // placed after the first part; length 0: none
  bool from_gpu = false;  // memory that no processor can copy
  fi_addr_t peer = FI_ADDR_UNSPEC;
  void* context = nullptr;
};

class OfiEndpoint {
 public:
  // `domain` outlives it. Errors: what the provider refuses.
  static Result<std::unique_ptr<OfiEndpoint>> open(const OfiDomain& domain);

  fid_ep* endpoint() const { return endpoint_.get(); }
  // Its address, for peers.
  std::span<const uint8_t> name() const { return name_; }

  // Removed when remove_peer() has been called as often. Errors: kPeer (an invalid address).
  Result<fi_addr_t> add_peer(std::span<const uint8_t> name);
  void remove_peer(std::span<const uint8_t> name);

  std::string text_of(std::span<const uint8_t> name) const;  // A peer's address as text.

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

class OfiEndpoints {
 public:
  // `domain` outlives it.
  explicit OfiEndpoints(const OfiDomain& domain) : domain_(domain) {}

  // For control words and `paths` for data, or as many as are possible. Errors: of the provider.
  Result<void> open(uint32_t paths);
  void close() { all_.clear(); }

  OfiEndpoint& first() const { return *all_.front(); }
  size_t for_data() const { return std::max<size_t>(all_.size() - 1, 1); }
  std::vector<std::vector<uint8_t>> names() const;  // For peers; all of the same length.

  // The peer's addresses at each endpoint: control writes go to its first endpoint, data to its
  // others. Errors: kPeer, and then no peer is added.
  Result<std::vector<fi_addr_t>> add_peer(const OfiAddress& remote);
  void remove_peer(const OfiAddress& remote) { remove_peer(remote, all_.size()); }

  // The endpoint for data with the fewest bytes in flight; of several, in turns.
  uint8_t next_for_data();
  // As OfiEndpoint::write. The bytes are in flight until on_done().
  int write(uint8_t endpoint, const OfiWrite& write) const { return all_[endpoint]->write(write); }
  void on_started(uint8_t endpoint, Bytes bytes) { in_flight_[endpoint] += bytes; }
  void on_done(uint8_t endpoint, Bytes bytes) { in_flight_[endpoint] -= bytes; }

 private:
  static const std::vector<uint8_t>& remote_name(const OfiAddress& remote, size_t endpoint);
  void remove_peer(const OfiAddress& remote, size_t count);  // From the first `count` endpoints.

  const OfiDomain& domain_;
  std::vector<std::unique_ptr<OfiEndpoint>> all_;
  std::vector<Bytes> in_flight_;  // by endpoint
  size_t name_bytes_ = 0;         // of the longest name
  size_t turn_ = 0;               // over the endpoints for data
};

}  // namespace pacecar
