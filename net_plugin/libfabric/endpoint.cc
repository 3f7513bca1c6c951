#include "net_plugin/libfabric/endpoint.h"

#include <algorithm>
#include <cstring>

#include "net_plugin/libfabric/info.h"
#include "transport/base/random_word.h"
#include "transport/io/sockaddr.h"
#include "transport/wire/address.h"

namespace pacecar::fabric {
namespace {

// How long closing an endpoint waits for its frames and puts to be sent.
constexpr auto kFlushTimeout = std::chrono::milliseconds(1000);
// A turn takes 50 ns, and 1 us with a poll of the NIC. So while frames come through shared memory,
// only every 32nd turn polls the NIC,
constexpr uint32_t kTurnsWithoutNic = 32;
// until none has come through it for so many turns.
constexpr uint32_t kSharedTurns = 1024;

Endpoint& of(fid* object) { return *static_cast<Endpoint*>(reinterpret_cast<fid_ep*>(object)); }

// Whether all that can be sent to the peer is sent.
bool is_flushed(const Peer& peer) {
  const bool puts = peer.puts != nullptr && !peer.puts->idle();
  return !peer.can_send() || (!puts && peer.outbox->idle() && peer.queued_puts.empty());
}

// The call of libfabric that is this member function.
template <auto kMember, typename... Arguments>
auto guarded_call(fid* object, Arguments... arguments) {
  return guarded([&] { return (of(object).*kMember)(arguments...); });
}

int close_endpoint(fid* object) {
  of(object).flush();
  delete &of(object);
  return 0;
}

int control_endpoint(fid* object, int command, void* argument) {
  Endpoint& endpoint = of(object);
  switch (command) {
    case FI_ENABLE:
      return endpoint.enable();
    case FI_GETOPSFLAG: {
      auto* const flags = static_cast<uint64_t*>(argument);
      *flags = (*flags & FI_RECV) != 0 ? endpoint.rx_flags() : endpoint.tx_flags();
      return 0;
    }
    default:
      return -FI_ENOSYS;
  }
}

int get_option(fid_t object, int level, int name, void* value, size_t* bytes) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (*bytes < sizeof(size_t)) return -FI_ETOOSMALL;
  std::memcpy(value, &of(object).min_multi_receive, sizeof(size_t));
  *bytes = sizeof(size_t);
  return 0;
}

int set_option(fid_t object, int level, int name, const void* value, size_t bytes) {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (bytes != sizeof(size_t)) return -FI_EINVAL;
  std::memcpy(&of(object).min_multi_receive, value, sizeof(size_t));
  return 0;
}

fi_ops kEndpointObject =
    object_calls(safe<close_endpoint>, safe<control_endpoint>, guarded_call<&Endpoint::bind>);
fi_ops_ep kEndpoint = {.size = sizeof(fi_ops_ep),
                       .cancel = guarded_call<&Endpoint::cancel>,
                       .getopt = get_option,
                       .setopt = set_option,
                       .tx_ctx = unsupported,
                       .rx_ctx = unsupported,
                       .rx_size_left = unsupported,
                       .tx_size_left = unsupported};
fi_ops_cm kNames = {.size = sizeof(fi_ops_cm),
                    .setname = guarded_call<&Endpoint::set_name>,
                    .getname = guarded_call<&Endpoint::get_name>,
                    .getpeer = unsupported,
                    .connect = unsupported,
                    .listen = unsupported,
                    .accept = unsupported,
                    .reject = unsupported,
                    .shutdown = unsupported,
                    .join = unsupported};

}  // namespace

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
  const bool rdm = info->ep_attr == nullptr || info->ep_attr->type == FI_EP_RDM ||
                   info->ep_attr->type == FI_EP_UNSPEC;
  if (!rdm || info->tx_attr == nullptr || info->rx_attr == nullptr) return -FI_EINVAL;
  auto* const made = new Endpoint(*static_cast<Domain*>(domain), *info);
  made->cm = &kNames;
  made->msg = &message_calls;
  made->rma = &rma_calls;
  made->tagged = &tagged_calls;
  made->atomic = &atomic_calls;
  return hand_out(made, FI_CLASS_EP, &kEndpointObject, &kEndpoint, context, endpoint);
}

Endpoint::Endpoint(Domain& domain, const fi_info& info)
    : fid_ep{},
      domain_(domain),
      caps_(info.caps),
      tx_flags_(info.tx_attr->op_flags),
      rx_flags_(info.rx_attr->op_flags),
      tx_size_(info.tx_attr->size),
      rx_size_(info.rx_attr->size),
      inject_bytes_(info.tx_attr->inject_size),
      instance_(random_u64()) {
  const SocketAddress any{.v4 = {.sin_family = AF_INET}};
  const auto name = from_sockaddr(static_cast<const sockaddr*>(info.src_addr));
  wanted_name_ = name                                  ? *name
                 : info.addr_format == FI_SOCKADDR_IN6 ? Address()
                                                       : from_sockaddr(any);
  ++domain_.users;
}

Endpoint::~Endpoint() {
  {
    const std::lock_guard lock(domain_.mutex);
    std::erase(domain_.endpoints, this);
    // From now on peers read none of our memory. An atomic store, as the compiler may drop plain
    // stores before the end of an object.
    for (const auto& peer : peers_) std::atomic_ref(peer->token[0]) = 0;
    if (vector_ != nullptr) --vector_->users;
    if (tx_queue_ != nullptr) --tx_queue_->users;
    if (rx_queue_ != nullptr) --rx_queue_->users;
    for (const auto& [what, counter] : counters_) --counter->users;
    operations_.for_each([&](uint64_t /*number*/, Operation& operation) { release(operation); });
    peers_.clear();
    unidentified_.clear();
  }
  --domain_.users;
}

int Endpoint::bind(struct fid* other, uint64_t flags) {
  const std::lock_guard lock(domain_.mutex);
  if (enabled()) return -FI_EOPBADSTATE;
  switch (other->fclass) {
    case FI_CLASS_AV:
      if (vector_ != nullptr) return -FI_EINVAL;
      vector_ = reinterpret_cast<AddressVector*>(other);
      ++vector_->users;
      return 0;
    case FI_CLASS_EQ:
      events_ = reinterpret_cast<EventQueue*>(other);
      return 0;
    case FI_CLASS_CQ: {
      auto* const queue = reinterpret_cast<CompletionQueue*>(other);
      const bool transmits = (flags & FI_TRANSMIT) != 0;
      const bool receives = (flags & FI_RECV) != 0;
      const bool taken = (transmits && tx_queue_ != nullptr) || (receives && rx_queue_ != nullptr);
      if (taken || !(transmits || receives)) return -FI_EINVAL;
      const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
      if (transmits) std::tie(tx_queue_, tx_selective_) = std::pair(queue, selective);
      if (receives) std::tie(rx_queue_, rx_selective_) = std::pair(queue, selective);
      queue->users += (transmits ? 1 : 0) + (receives ? 1 : 0);
      return 0;
    }
    case FI_CLASS_CNTR: {
      auto* const counter = reinterpret_cast<Counter*>(other);
      for (const uint64_t what :
           {FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE}) {
        if ((flags & what) == 0 || counters_.contains(what)) continue;
        counters_[what] = counter;
        ++counter->users;
      }
      return 0;
    }
    default:
      return -FI_EINVAL;
  }
}

int Endpoint::enable() {
  const std::lock_guard lock(domain_.mutex);
  if (enabled()) return 0;
  if (vector_ == nullptr) return -FI_ENOAV;
  if ((caps_ & FI_SEND) != 0 && tx_queue_ == nullptr && counters_.empty()) return -FI_ENOCQ;
  auto listener = domain_.pacecar().listen(domain_.nic());
  if (!listener) return failed(listener.error());
  auto bootstrap = EndpointBootstrap::open(wanted_name_);
  if (!bootstrap) {
    log_warning(bootstrap.error().message);
    return -FI_EADDRINUSE;
  }
  listener_ = std::move(*listener);
  bootstrap_ = std::move(*bootstrap);
  name_ = bootstrap_->address();
  if (is_unspecified(name_)) {  // the name is the address of this host that peers call
    const uint16_t port = name_.port;
    const std::string& device = domain_.pacecar().nics()[domain_.nic()].device;
    name_ = address_of_device(device, family_of(name_)).value_or(name_);
    name_.port = port;
  }
  if (domain_.cma()) bootstrap_->enable_within_host(name_);
  domain_.endpoints.push_back(this);
  return 0;
}

int Endpoint::set_name(const void* address, size_t bytes) {
  const std::lock_guard lock(domain_.mutex);
  if (enabled()) return -FI_EOPBADSTATE;
  const auto* const wanted = static_cast<const sockaddr*>(address);
  const bool whole = bytes >= sizeof(sockaddr_in6) ||
                     (bytes >= sizeof(sockaddr_in) && wanted->sa_family == AF_INET);
  const auto name = whole ? from_sockaddr(wanted) : std::nullopt;
  if (!name) return -FI_EINVAL;
  wanted_name_ = *name;
  return 0;
}

int Endpoint::get_name(void* address, size_t* bytes) const {
  const std::lock_guard lock(domain_.mutex);
  if (!enabled()) return -FI_EOPBADSTATE;
  return copy_address(name_, address, bytes) ? 0 : -FI_ETOOSMALL;
}

ssize_t Endpoint::cancel(void* context) {
  const std::lock_guard lock(domain_.mutex);
  for (Messages* messages : {&tagged_, &untagged_}) {
    for (auto at = messages->receives().begin(); at != messages->receives().end(); ++at) {
      if (at->receive.context != context) continue;
      fail_receive(*messages, at, FI_ECANCELED, "the receive was cancelled");
      return 0;
    }
  }
  return -FI_ENOENT;
}

// Polls the NIC by one of the connections, which serves all.
void Endpoint::poll_nic() {
  if (shared_turns_ > 0) {
    --shared_turns_;
    if (++turns_without_nic_ < kTurnsWithoutNic) return;
  }
  turns_without_nic_ = 0;
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = *peers_[next_to_poll_++ % peers_.size()];
    if (peer.frames.source != nullptr && peer.frames.source->turn()) return;
  }
}

void Endpoint::progress() {
  poll_nic();
  for (const auto& each : peers_) {
    Peer& peer = *each;
    const bool shared = peer.frames.source != nullptr && read_frames(peer, peer.shared);
    if (shared) shared_turns_ = kSharedTurns;
    read_frames(peer, peer.frames);
    read_frames(peer, peer.placed);
    if (!peer.can_send()) continue;
    auto moved = peer.outbox->finish();
    if (moved && peer.puts != nullptr) {
      moved = peer.puts->finish([this](uint64_t number) {
        Operation* const operation = operations_.find(number);
        if (operation == nullptr) return;
        --operation->outstanding_puts;
        end_if_done(*operation);
      });
    }
    if (moved) {
      start_queued_puts(peer);
      start_queued_reads(peer);
      continue_direct_reads(peer);
      moved = peer.outbox->start(Outbox::Coming::kNothing);
    }
    if (!moved) cannot_send(peer, moved.error());
  }
  progress_connections();
}

bool Endpoint::prepare_to_rest() {
  return std::ranges::all_of(peers_, [](const auto& peer) {
    const IncomingStream& shared = peer->shared;
    const bool waits = shared.reading.has_value();  // for room in a queue
    return peer->direct_reads.empty() &&
           (shared.source == nullptr || waits || shared.source->rest());
  });
}

bool Endpoint::has_unsent_frames() const {
  return std::ranges::any_of(peers_, [](const auto& peer) {
    return !peer->sends_fail() && peer->outbox->has_unsent_frames();
  });
}

void Endpoint::flush() {
  if (!enabled()) return;
  std::unique_lock lock(domain_.mutex);
  const auto give_up = attended_.total() + kFlushTimeout;
  bool bye_sent = false;
  while (attended_.total() < give_up) {
    progress();
    const bool flushed =
        std::ranges::all_of(peers_, [](const auto& peer) { return is_flushed(*peer); });
    if (flushed && bye_sent) return;
    if (flushed) {
      bye_sent = true;
      for (const auto& peer : peers_) {
        if (peer->can_send()) (void)peer->outbox->reply({.kind = FrameKind::kBye}, {});
      }
      continue;
    }
    lock.unlock();
    domain_.pacecar().rest(domain_.nic());
    lock.lock();
  }
  for (const auto& peer : peers_) {
    if (is_flushed(*peer)) continue;
    log_warning(to_string(peer->name) +
                " has not received all that was sent to it; the rest is lost, as the endpoint is "
                "closed. Let the peer read its completions, or close later");
  }
}

// --- completions ---

void Endpoint::count(uint64_t what, bool failed) {
  const auto counter = counters_.find(what);
  if (counter != counters_.end()) counter->second->count(failed);
}

// Of a success, or of a failure if its completion has an error.
void Endpoint::report(PendingCompletion& pending, CompletionQueue* queue) {
  const bool failed = pending.completion.err != 0;
  const bool queued = failed || pending.queued_on_success;
  SharedBuffer* const shared = pending.shared.get();
  if (shared != nullptr && --shared->incomplete == 0 && shared->used_up) {
    pending.completion.flags |= FI_MULTI_RECV;
  }
  const uint64_t kind = pending.completion.flags & (FI_SEND | FI_RECV | FI_WRITE | FI_READ);
  if (queued && queue != nullptr) queue->add(std::move(pending.completion));
  if (pending.counted) count(kind, failed);
}

bool Endpoint::receives_full() const { return rx_queue_ != nullptr && rx_queue_->full(); }

}  // namespace pacecar::fabric
