// The provider's pure parts against simple models.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "net_plugin/libfabric/core/frame.h"
#include "net_plugin/libfabric/core/matcher.h"
#include "net_plugin/libfabric/core/names.h"
#include "net_plugin/libfabric/core/operation_table.h"
#include "net_plugin/libfabric/core/pieces.h"

namespace pacecar::fabric::core_property {
namespace {

RC_GTEST_PROP(FiFrameProperty, WrittenFramesAreReadBack, ()) {
  const auto sizes = *rc::gen::container<std::vector<uint8_t>>(rc::gen::inRange<uint8_t>(0, 40));
  std::vector<uint8_t> message;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Frame frame{.kind = FrameKind::kMessage, .payload = sizes[i], .id = i};
    const size_t at = message.size();
    message.resize(at + frame_bytes(sizes[i]));
    std::memcpy(&message[at], &frame, sizeof frame);
    std::fill_n(message.begin() + static_cast<ptrdiff_t>(at + sizeof frame), sizes[i], i & 0xff);
  }
  FrameReader reader(message);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto view = reader.next();
    RC_ASSERT(view.has_value());
    RC_ASSERT(view->frame.id == i);
    RC_ASSERT(view->payload.size() == sizes[i]);
    RC_ASSERT(std::ranges::all_of(view->payload, [&](uint8_t byte) { return byte == (i & 0xff); }));
  }
  RC_ASSERT(!reader.next().has_value());
  RC_ASSERT(reader.whole());
}

// Whatever the bytes are, the reader returns nothing outside their range.
RC_GTEST_PROP(FiFrameProperty, AnyBytesAreReadWithinBounds, ()) {
  const auto bytes = *rc::gen::container<std::vector<uint8_t>>(rc::gen::inRange<uint8_t>(0, 14));
  FrameReader reader(bytes);
  size_t seen = 0;
  while (const auto view = reader.next()) {
    seen += sizeof(Frame) + view->payload.size();
    RC_ASSERT(seen <= bytes.size());
  }
}

struct Posted {
  Pattern pattern;
  int number;
};
struct Arrived {
  PeerId source;
  uint64_t tag;
  int number;
};

// Receives and messages in any order match as in lists that are searched from the front.
RC_GTEST_PROP(FiMatcherProperty, MatchesLikeASearchOfLists, ()) {
  Matcher<int, int> matcher;
  std::vector<Posted> receives;
  std::vector<Arrived> messages;
  const int steps = *rc::gen::inRange(1, 120);
  for (int number = 0; number < steps; ++number) {
    const PeerId source = *rc::gen::inRange<PeerId>(0, 3);
    const uint64_t tag = *rc::gen::inRange<uint64_t>(0, 8);
    if (*rc::gen::arbitrary<bool>()) {
      const Pattern pattern{.source = *rc::gen::element(source, kAnyPeer),
                            .tag = tag,
                            .ignore = *rc::gen::element<uint64_t>(0, 1, 6, ~uint64_t{0})};
      const auto at = matcher.message_for(pattern);
      const auto expected = std::ranges::find_if(messages, [&](const Arrived& message) {
        return (pattern.source == kAnyPeer || pattern.source == message.source) &&
               (message.tag | pattern.ignore) == (pattern.tag | pattern.ignore);
      });
      RC_ASSERT((at == matcher.messages().end()) == (expected == messages.end()));
      if (expected == messages.end()) {
        matcher.post(pattern, number);
        receives.push_back({pattern, number});
      } else {
        RC_ASSERT(matcher.take(at) == expected->number);
        messages.erase(expected);
      }
    } else {
      const auto at = matcher.receive_for(source, tag);
      const auto expected = std::ranges::find_if(receives, [&](const Posted& receive) {
        const Pattern& wants = receive.pattern;
        return (wants.source == kAnyPeer || wants.source == source) &&
               (tag | wants.ignore) == (wants.tag | wants.ignore);
      });
      RC_ASSERT((at == matcher.receives().end()) == (expected == receives.end()));
      if (expected == receives.end()) {
        matcher.add_unexpected(source, tag, number);
        messages.push_back({source, tag, number});
      } else {
        RC_ASSERT(matcher.take(at) == expected->number);
        receives.erase(expected);
      }
    }
  }
}

RC_GTEST_PROP(FiMatcherProperty, ClaimedMessageMatchesNoReceive, ()) {
  Matcher<int, int> matcher;
  const int count = *rc::gen::inRange(1, 10);
  for (int number = 0; number < count; ++number) matcher.add_unexpected(0, 5, number);
  const int claimed = *rc::gen::inRange(0, count);
  int context = 0;
  std::next(matcher.messages().begin(), claimed)->claimed_by = &context;
  std::vector<int> taken;
  for (auto at = matcher.message_for({.tag = 5}); at != matcher.messages().end();
       at = matcher.message_for({.tag = 5})) {
    taken.push_back(matcher.take(at));
  }
  RC_ASSERT(taken.size() == static_cast<size_t>(count - 1));
  RC_ASSERT(std::ranges::count(taken, claimed) == 0);
  RC_ASSERT(matcher.take(matcher.claimed(&context)) == claimed);
  RC_ASSERT(matcher.messages().empty());
}

RC_GTEST_PROP(FiOperationTableProperty, NumbersAreNeverReused, ()) {
  constexpr uint32_t kMost = 5;
  OperationTable<int> table(kMost);
  std::map<uint64_t, int> model;
  std::vector<uint64_t> ended;
  const int steps = *rc::gen::inRange(1, 200);
  for (int step = 0; step < steps; ++step) {
    RC_ASSERT(table.full() == (model.size() == kMost));
    if (!table.full() && *rc::gen::arbitrary<bool>()) {
      const auto [number, operation] = table.take();
      RC_ASSERT(number != 0 && *operation == 0);
      RC_ASSERT(std::ranges::count(ended, number) == 0);
      RC_ASSERT(model.emplace(number, step).second);
      *operation = step;
    } else if (!model.empty()) {
      const auto at = std::next(
          model.begin(), *rc::gen::inRange<ptrdiff_t>(0, static_cast<ptrdiff_t>(model.size())));
      ended.push_back(at->first);
      table.release(at->first);
      model.erase(at);
    }
    for (const auto& [number, value] : model) RC_ASSERT(*table.find(number) == value);
    for (const uint64_t number : ended) RC_ASSERT(table.find(number) == nullptr);
  }
  size_t visited = 0;
  table.for_each([&](uint64_t number, int& value) {
    RC_ASSERT(model.at(number) == value);
    ++visited;
  });
  RC_ASSERT(visited == model.size());
}

// Compares the pieces of both sides byte by byte.
RC_GTEST_PROP(FiPiecesProperty, EachByteIsCopiedToItsPlace, ()) {
  const auto sizes = rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, 6));
  const auto from = *sizes;
  const auto to = *sizes;
  const auto places = [](const std::vector<size_t>& all) {
    std::vector<std::pair<size_t, size_t>> bytes;
    for (size_t i = 0; i < all.size(); ++i) {
      for (size_t at = 0; at < all[i]; ++at) bytes.emplace_back(i, at);
    }
    return bytes;
  };
  const auto sources = places(from);
  const auto targets = places(to);
  size_t moved = 0;
  pair_pieces(
      from.size(), [&](size_t i) { return from[i]; }, to.size(), [&](size_t j) { return to[j]; },
      [&](size_t i, uint64_t i_offset, size_t j, uint64_t j_offset, uint64_t bytes) {
        RC_ASSERT(bytes > 0);
        for (uint64_t at = 0; at < bytes; ++at, ++moved) {
          RC_ASSERT(sources[moved] == std::pair(i, static_cast<size_t>(i_offset + at)));
          RC_ASSERT(targets[moved] == std::pair(j, static_cast<size_t>(j_offset + at)));
        }
      });
  RC_ASSERT(moved == std::min(sources.size(), targets.size()));
}

RC_GTEST_PROP(FiNamesProperty, BehavesAsAMap, ()) {
  Names names;
  std::map<uint64_t, Address> model;
  const int steps = *rc::gen::inRange(1, 100);
  for (int step = 0; step < steps; ++step) {
    if (*rc::gen::arbitrary<bool>()) {
      const Address name{.port = *rc::gen::inRange<uint16_t>(0, 5)};
      RC_ASSERT(model.emplace(names.add(name), name).second);
    } else {
      const uint64_t number = *rc::gen::inRange<uint64_t>(0, 20);
      RC_ASSERT(names.remove(number) == (model.erase(number) == 1));
    }
    for (uint64_t number = 0; number < 20; ++number) {
      const Address* const name = names.find(number);
      RC_ASSERT((name != nullptr) == model.contains(number));
      if (name != nullptr) RC_ASSERT(*name == model.at(number));
    }
    for (uint16_t port = 0; port < 5; ++port) {
      const Address name{.port = port};
      const auto number = names.number_of(name);
      const bool known =
          std::ranges::any_of(model, [&](const auto& entry) { return entry.second == name; });
      RC_ASSERT(number.has_value() == known);
      if (number) RC_ASSERT(model.at(*number) == name);
    }
  }
}

}  // namespace
}  // namespace pacecar::fabric::core_property
