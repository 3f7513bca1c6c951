// Tag matching. A message goes to the oldest posted receive that matches it. A new receive takes
// the oldest unexpected message that matches it. List entries are recycled, so that nothing is
// allocated in the steady state. Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
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
    const void* claimed_by = nullptr;  // context of the claim (FI_CLAIM); null: not claimed
  };
  using Receives = std::list<Posted>;
  using Messages = std::list<Arrived>;

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
      return one.claimed_by == nullptr && pattern.matches(one.source, one.tag);
    });
  }
  // The message that was claimed with this context.
  typename Messages::iterator claimed(const void* by) {
    return std::ranges::find(messages_, by, &Arrived::claimed_by);
  }

  Receive& post(const Pattern& pattern, Receive receive) {
    return add(receives_, free_receives_, Posted{pattern, std::move(receive)}).receive;
  }
  Message& keep(PeerId source, uint64_t tag, Message message) {
    return add(messages_, free_messages_, Arrived{source, tag, std::move(message)}).message;
  }
  Receive take(typename Receives::iterator at) {
    Receive receive = std::move(at->receive);
    free_receives_.splice(free_receives_.begin(), receives_, at);
    return receive;
  }
  Message take(typename Messages::iterator at) {
    Message message = std::move(at->message);
    free_messages_.splice(free_messages_.begin(), messages_, at);
    return message;
  }

 private:
  template <typename List>
  static typename List::value_type& add(List& list, List& free, typename List::value_type value) {
    if (free.empty()) return list.emplace_back(std::move(value));
    free.front() = std::move(value);
    list.splice(list.end(), free, free.begin());
    return list.back();
  }

  Receives receives_;
  Receives free_receives_;
  Messages messages_;
  Messages free_messages_;
};

}  // namespace pacecar::fabric
