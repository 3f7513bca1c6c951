// The other end of a queue pair of a libfabric NIC, that says what a test wants it to say.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "tests/support/ofi_end.h"
#include "transport/ofi/address.h"
#include "transport/ofi/endpoint.h"
#include "transport/ofi/host_turn.h"
#include "transport/ofi/mailbox.h"

namespace pacecar::test {

class OfiStranger {
 public:
  static constexpr QueuePairId kId = 4711;

  explicit OfiStranger(const OfiKind& kind)
      : domain_(need(OfiDomain::open(need(choose_ofi_provider(kind.provider, kind.domain)),
                                     "stranger", 1024))),
        endpoint_(need(OfiEndpoint::open(domain_))),
        memory_(domain_, 4),
        mailbox_(rings_, kId) {
    memory_.use(endpoint_->endpoint());
    region_ = need(memory_.lend(&rings_, sizeof rings_));
    if (domain_.traits().host_only) turn_ = need(HostTurn::make());
  }

  // A queue pair of `end` that leads here.
  QueuePairId meet(OfiEnd& end) {
    const OfiAddress own{.provider = ofi_provider_tag(domain_.provider().name),
                         .queue_pair = kId,
                         .slot = 0,
                         .rings = region_.place,
                         .rings_key = region_.provider_key,
                         .turn = turn_ ? turn_->place() : HostTurn::Place(),
                         .endpoints = {{endpoint_->name().begin(), endpoint_->name().end()}}};
    const QueuePairId id = need(end.nic().create_queue_pair({}));
    remote_ = need(decode_ofi_address(end.nic().queue_pair_address(id).view()));
    join(end, id, encode(own).view());
    peer_ = need(endpoint_->add_peer(remote_.endpoints.front()));
    mailbox_.join(id);
    return id;
  }

  // Turns both until the message is there.
  void say(OfiEnd& end, const OfiMessage& message) {
    const OfiMailbox::Outgoing outgoing = mailbox_.send(message);
    place({&end}, *outgoing.message, outgoing.place);
  }
  // Into a place of the peer's ring, with a write that tells of itself where `data` is given; turns
  // `ends` until it is there.
  void place(std::initializer_list<OfiEnd*> ends, const OfiMessage& message, uint32_t place,
             std::optional<uint64_t> data = {}) {
    const OfiMessage copy = message;
    const OfiWrite write{.data = &copy,
                         .length = sizeof copy,
                         .descriptor = region_.descriptor(),
                         .peer = peer_,
                         .place = remote_.rings + offsetof(OfiRings, in) + place * sizeof copy,
                         .key = remote_.rings_key,
                         .has_completion_data = data.has_value(),
                         .completion_data = data.value_or(0),
                         .context = &context_};
    const size_t before = completed_;
    int error = -FI_EAGAIN;
    run_until(ends, [&] {
      if (error == -FI_EAGAIN) error = endpoint_->write(write);
      step();
      return completed_ > before;
    });
  }
  void step() {
    for (const fi_cq_data_entry& entry : domain_.poll()) {
      completed_ += entry.op_context == &context_ ? 1 : 0;
    }
    for (OfiDomain::Failed failed; domain_.take_failure(&failed);) {
    }
    while (const auto message = mailbox_.take()) heard.push_back(*message);
  }
  const OfiMessage* heard_of(OfiMessage::Kind kind) const {
    const auto found = std::ranges::find(heard, kind, &OfiMessage::kind);
    return found == heard.end() ? nullptr : &*found;
  }
  OfiMailbox& mailbox() { return mailbox_; }

  std::vector<OfiMessage> heard;

 private:
  OfiDomain domain_;
  std::optional<HostTurn> turn_;
  OfiRings rings_;
  std::unique_ptr<OfiEndpoint> endpoint_;
  OfiRegistrations memory_;
  OfiRegistrations::Region region_;
  OfiMailbox mailbox_;
  OfiAddress remote_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  fi_context2 context_{};
  size_t completed_ = 0;
};

}  // namespace pacecar::test
