// The other end of a libfabric NIC's queue pair, which sends the messages that the test wants.
// Thread rule: one thread.
#pragma once

#include <rdma/fi_rma.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "tests/support/ofi_end.h"
#include "transport/ofi/address.h"
#include "transport/ofi/domain.h"
#include "transport/ofi/endpoint.h"
#include "transport/ofi/mailbox.h"
#include "transport/ofi/registrations.h"

namespace pacecar::test {

class OfiStranger {
 public:
  static constexpr uint64_t kSecret = 4711;

  explicit OfiStranger(const OfiKind& kind)
      : domain_(need(OfiDomain::open(need(choose_ofi_provider(kind.provider, kind.domain)),
                                     "stranger", 1024))),
        endpoint_(need(OfiEndpoint::open(domain_))),
        memory_(domain_, 4),
        mailbox_(rings_, kSecret) {
    memory_.use(endpoint_->endpoint());
    region_ = need(memory_.add_own(&rings_, sizeof rings_));
  }

  // A queue pair of `end` that is connected to this end.
  QueuePairId meet(OfiEnd& end) {
    const OfiAddress own{.provider = ofi_provider_tag(domain_.provider().name),
                         .secret = kSecret,
                         .rings = region_.place,
                         .rings_key = region_.provider_key,
                         .endpoints = {{endpoint_->name().begin(), endpoint_->name().end()}}};
    const QueuePairId id = need(end.nic().create_queue_pair({}));
    remote_ = need(decode_ofi_address(end.nic().queue_pair_address(id).view()));
    join(end, id, encode(own).view());
    peer_ = need(endpoint_->add_peer(remote_.endpoints.front()));
    mailbox_.join(remote_.secret);
    return id;
  }

  // Polls both ends until the message has arrived.
  void send(OfiEnd& end, const OfiMessage& message) {
    const OfiMailbox::Outgoing outgoing = mailbox_.send(message);
    place({&end}, *outgoing.message, outgoing.slot);
  }
  // Writes into a slot of the peer's ring; polls `ends` until the message has arrived.
  void place(std::initializer_list<OfiEnd*> ends, const OfiMessage& message, uint32_t place) {
    attempt(ends, message, remote_.rings + offsetof(OfiRings, in) + place * sizeof message,
            remote_.rings_key);
  }
  // Writes anywhere in the peer's memory, with completion data if `data` is given; polls `ends`
  // until the write has ended. False: it was refused, or is not answered (rxd does not show which).
  bool attempt(std::initializer_list<OfiEnd*> ends, const OfiMessage& message, uint64_t place,
               uint64_t key, std::optional<uint64_t> data = {}) {
    sent_.push_back(message);  // kept, as the provider may retransmit it
    const iovec local{.iov_base = &sent_.back(), .iov_len = sizeof message};
    const fi_rma_iov remote{.addr = place, .len = sizeof message, .key = key};
    void* descriptor = region_.descriptor();
    const fi_msg_rma write{.msg_iov = &local,
                           .desc = &descriptor,
                           .iov_count = 1,
                           .addr = peer_,
                           .rma_iov = &remote,
                           .rma_iov_count = 1,
                           .context = &context_,
                           .data = data.value_or(0)};
    const uint64_t flags = FI_COMPLETION | FI_DELIVERY_COMPLETE | (data ? FI_REMOTE_CQ_DATA : 0);
    const size_t done = completed_;
    const size_t refused = refused_;
    const Instant limit = monotonic_now() + kUnanswered;
    ssize_t error = -FI_EAGAIN;
    for (const Waiting idle; completed_ == done && refused_ == refused && monotonic_now() < limit;
         idle.pause()) {
      if (error == -FI_EAGAIN) error = fi_writemsg(endpoint_->endpoint(), &write, flags);
      step();
      for (OfiEnd* end : ends) end->step();
    }
    return completed_ > done;
  }
  void step() {
    for (const fi_cq_data_entry& entry : domain_.poll()) {
      completed_ += entry.op_context == &context_ ? 1 : 0;
    }
    while (const auto failed = domain_.take_failure()) {
      refused_ += failed->context == &context_ ? 1 : 0;
    }
    while (const auto message = mailbox_.take()) received.push_back(*message);
  }
  // The address of the queue pair that is connected to this end.
  const OfiAddress& remote() const { return remote_; }
  const OfiMessage* received_of(OfiMessage::Kind kind) const {
    const auto found = std::ranges::find(received, kind, &OfiMessage::kind);
    return found == received.end() ? nullptr : &*found;
  }
  OfiMailbox& mailbox() { return mailbox_; }

  std::vector<OfiMessage> received;

 private:
  static constexpr Duration kUnanswered = Duration::from_s(6);

  OfiDomain domain_;
  OfiRings rings_;
  std::unique_ptr<OfiEndpoint> endpoint_;
  OfiRegistrations memory_;
  OfiRegistrations::Region region_;
  OfiMailbox mailbox_;
  OfiAddress remote_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  fi_context2 context_{};
  std::deque<OfiMessage> sent_;
  size_t completed_ = 0;
  size_t refused_ = 0;
};

}  // namespace pacecar::test
