#include "transport/ofi/endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

// Beyond a name that a peer has sent: libfabric reads to a 0, or as far as its first bytes ask for.
constexpr size_t kNameRoom = sizeof(sockaddr_storage);

// The scope of a peer's link-local IPv6 name is the number of its interface, not of ours.
void take_own_scope(std::span<const uint8_t> own, std::vector<uint8_t>& peer) {
  constexpr size_t kScope = offsetof(sockaddr_in6, sin6_scope_id);
  sockaddr_in6 name{};
  if (own.size() != sizeof name || peer.size() != sizeof name) return;
  std::memcpy(&name, peer.data(), sizeof name);
  if (!IN6_IS_ADDR_LINKLOCAL(&name.sin6_addr)) return;
  std::copy_n(own.begin() + kScope, sizeof name.sin6_scope_id, peer.begin() + kScope);
}

}  // namespace

Result<std::unique_ptr<OfiEndpoint>> OfiEndpoint::open(const OfiDomain& domain) {
  std::unique_ptr<OfiEndpoint> made(new OfiEndpoint(domain));
  fi_av_attr attributes{.type = FI_AV_TABLE};
  fid_av* addresses = nullptr;
  if (const int error = fi_av_open(domain.domain(), &attributes, &addresses, nullptr); error != 0) {
    return domain.failed("fi_av_open", error);
  }
  made->addresses_.reset(addresses);
  fid_ep* endpoint = nullptr;
  fi_info* const info = domain.provider().info.get();
  if (const int error = domain.libfabric().endpoint(domain.domain(), info, &endpoint); error != 0) {
    return domain.failed("fi_endpoint", error);
  }
  made->endpoint_.reset(endpoint);
  int error = fi_ep_bind(endpoint, &addresses->fid, 0);
  if (error == 0) {
    error = fi_ep_bind(endpoint, &domain.completions()->fid, FI_TRANSMIT | FI_RECV);
  }
  if (error == 0) error = fi_enable(endpoint);
  if (error != 0) return domain.failed("fi_enable", error);
  size_t size = 0;
  fi_getname(&endpoint->fid, nullptr, &size);
  made->name_.resize(size);
  if (error = fi_getname(&endpoint->fid, made->name_.data(), &size); error != 0) {
    return domain.failed("fi_getname", error);
  }
  return made;
}

Result<fi_addr_t> OfiEndpoint::add_peer(std::span<const uint8_t> name) {
  std::vector<uint8_t> key(name.begin(), name.end());
  Peer& peer = peers_[key];
  if (peer.users == 0) {
    const bool fits =
        name.size() == name_.size() || domain_.provider().info->addr_format == FI_ADDR_STR;
    if (fits && domain_.provider().info->addr_format == FI_SOCKADDR_IN6) take_own_scope(name_, key);
    key.resize(name.size() + kNameRoom);
    const int added =
        fits ? fi_av_insert(addresses_.get(), key.data(), 1, &peer.address, 0, nullptr) : 0;
    if (added != 1 || peer.address == FI_ADDR_NOTAVAIL) {
      peers_.erase({name.begin(), name.end()});
      return fail(ErrorCode::kPeer,
                  domain_.name() +
                      " cannot use the peer's address: choose NICs of the same network "
                      "on both sides with PACECAR_NICS");
    }
  }
  ++peer.users;
  return peer.address;
}

void OfiEndpoint::remove_peer(std::span<const uint8_t> name) {
  const auto found = peers_.find({name.begin(), name.end()});
  if (found == peers_.end() || --found->second.users > 0) return;
  fi_av_remove(addresses_.get(), &found->second.address, 1, 0);
  peers_.erase(found);
}

std::string OfiEndpoint::text_of(std::span<const uint8_t> name) const {
  std::vector<uint8_t> address(name.begin(), name.end());
  address.resize(name.size() + kNameRoom);
  std::array<char, 256> text{};
  size_t size = text.size();
  fi_av_straddr(addresses_.get(), address.data(), text.data(), &size);
  const std::string_view all(text.data());
  const size_t scheme = all.find("://");
  return std::string(scheme == std::string_view::npos ? all : all.substr(scheme + 3));
}

int OfiEndpoint::write(const OfiWrite& write) const {
  std::array<iovec, 2> local;
  std::array<fi_rma_iov, 2> remote;
  std::array<void*, 2> descriptors;
  size_t count = 0;
  for (const OfiPart* part : {&write.part, &write.behind}) {
    if (part->length == 0) continue;
    local[count] = {.iov_base = const_cast<void*>(part->data), .iov_len = part->length};
    remote[count] = {.addr = part->place, .len = part->length, .key = part->key};
    descriptors[count++] = part->descriptor;
  }
  const fi_msg_rma message{.msg_iov = local.data(),
                           .desc = descriptors.data(),
                           .iov_count = count,
                           .addr = write.peer,
                           .rma_iov = remote.data(),
                           .rma_iov_count = count,
                           .context = write.context,
                           .data = 0};
  const Bytes length = write.part.length + write.behind.length;
  uint64_t flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
  if (length <= domain_.traits().inject && !write.from_gpu) flags |= FI_INJECT;
  return static_cast<int>(fi_writemsg(endpoint_.get(), &message, flags));
}

Result<void> OfiEndpoints::open(uint32_t paths) {
  name_bytes_ = 0;
  size_t wanted = domain_.traits().endpoint_memory ? 1 : 1 + paths;
  while (all_.size() < wanted) {
    ASSIGN_OR_RETURN(auto endpoint, OfiEndpoint::open(domain_));
    name_bytes_ = std::max(name_bytes_, endpoint->name().size());
    wanted = std::min(wanted, max_endpoints(name_bytes_));
    if (all_.size() < wanted) all_.push_back(std::move(endpoint));
  }
  in_flight_.assign(all_.size(), 0);
  return {};
}

std::vector<std::vector<uint8_t>> OfiEndpoints::names() const {
  std::vector<std::vector<uint8_t>> names;
  for (const auto& endpoint : all_) {
    auto& name = names.emplace_back(endpoint->name().begin(), endpoint->name().end());
    name.resize(name_bytes_);  // names that are text contain numbers, and differ in length
  }
  return names;
}

const std::vector<uint8_t>& OfiEndpoints::remote_name(const OfiAddress& remote, size_t endpoint) {
  const size_t count = remote.endpoints.size();
  const size_t for_data = std::max<size_t>(count - 1, 1);
  return remote.endpoints[endpoint == 0 ? 0 : (endpoint - 1) % for_data + count - for_data];
}

Result<std::vector<fi_addr_t>> OfiEndpoints::add_peer(const OfiAddress& remote) {
  std::vector<fi_addr_t> peers;
  for (size_t i = 0; i < all_.size(); ++i) {
    auto peer = all_[i]->add_peer(remote_name(remote, i));
    if (!peer) {
      remove_peer(remote, i);
      return tl::unexpected(peer.error());
    }
    peers.push_back(*peer);
  }
  return peers;
}

void OfiEndpoints::remove_peer(const OfiAddress& remote, size_t count) {
  for (size_t i = 0; i < count; ++i) all_[i]->remove_peer(remote_name(remote, i));
}

uint8_t OfiEndpoints::next_for_data() {
  if (all_.size() == 1) return 0;
  size_t best = 1 + turn_ % for_data();
  for (size_t i = 1; i < all_.size(); ++i) {
    if (in_flight_[i] < in_flight_[best]) best = i;
  }
  turn_ = best;
  return static_cast<uint8_t>(best);
}

}  // namespace pacecar
