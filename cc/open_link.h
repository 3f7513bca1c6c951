// OpenLink: leaves the link to the senders. Each is granted the line rate, in its CTS slots only;
// for published congestion controls without a receiver's side.
//
// Same purity and thread rule as Allocator.
#pragma once

#include "cc/allocator.h"

namespace pacecar {

class OpenLink final : public Allocator {
 public:
  // The longest validity: only the next CTS slot repeats the grant.
  static constexpr Duration kValidity = Duration::from_s(10);

  OpenLink(Rate line_rate, uint32_t) {
    grant_.rate = line_rate;
    grant_.validity = kValidity;
  }

  void add_flow(Instant, uint32_t) override {}
  void remove_flow(Instant, uint32_t) override {}
  void on_posted(Instant, uint32_t, Bytes) override {}
  void on_finished(Instant, uint32_t, Bytes) override {}
  void on_demand(Instant, uint32_t, const Demand&) override {}
  size_t poll_grants(Instant, std::span<GrantUpdate>) override { return 0; }
  Instant next_deadline() const override { return Instant::never(); }
  Grant grant(uint32_t) const override { return grant_; }

 private:
  Grant grant_;
};

}  // namespace pacecar
