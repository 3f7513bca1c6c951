// Tag matching. A message goes to the oldest posted receive that matches it. A new receive takes
// the oldest unexpected message that matches it. Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <memory_resource>
#include <optional>
#include <utility>

namespace pacecar::fabric {

using PeerId = uint32_t;
inline constexpr PeerId kAnyPeer = ~PeerId{0};

struct Pattern {
  PeerId source = kAnyPeer;
  uint64_t tag = 0;
  uint64_t ignore = 0;  // bits of the tag that are not compared

  bool matches(PeerId from, uint64_t message_tag) const {
    return (source == kAnyPeer || source == from) && ((tag ^ message_tag) & ~ignore) == 0;
  }
};

template <typename Receive, typename Message>
class Matcher {
 public:
  struct Posted {
    Pattern pattern;
    Receive receive;
  };
  struct Arrived {
    PeerId source = 0;
    uint64_t tag = 0;
    Message message;
    std::optional<const void*> claimed_by;  // context of the claim (FI_CLAIM)
  };
  using Receives = std::pmr::list<Posted>;
  using Messages = std::pmr::list<Arrived>;

  Receives& receives() { return receives_; }
  Messages& messages() { return messages_; }

  // The posted receive for a message; receives().end(): none.
  typename Receives::iterator receive_for(PeerId source, uint64_t tag) {
    return std::ranges::find_if(
        receives_, [&](const Posted& one) { return one.pattern.matches(source, tag); });
  }
  // The unexpected message for a receive; messages().end(): none yet.
  typename Messages::iterator message_for(const Pattern& pattern) {
    return std::ranges::find_if(messages_, [&](const Arrived& one) {
      return !one.claimed_by && pattern.matches(one.source, one.tag);
    });
  }
  // The message that was claimed with this context.
  typename Messages::iterator claimed(const void* by) {
    return std::ranges::find(messages_, std::optional(by), &Arrived::claimed_by);
  }

  Receive& post(const Pattern& pattern, Receive receive) {
    return receives_.emplace_back(Posted{pattern, std::move(receive)}).receive;
  }
  Message& add_unexpected(PeerId source, uint64_t tag, Message message) {
    return messages_.emplace_back(Arrived{source, tag, std::move(message)}).message;
  }
  Receive take(typename Receives::iterator at) {
    Receive receive = std::move(at->receive);
    receives_.erase(at);
    return receive;
  }
  Message take(typename Messages::iterator at) {
    Message message = std::move(at->message);
    messages_.erase(at);
    return message;
  }

 private:
  std::pmr::unsynchronized_pool_resource entries_;  // recycles them: no allocation in steady state
  Receives receives_{&entries_};
  Messages messages_{&entries_};
};

}  // namespace pacecar::fabric
