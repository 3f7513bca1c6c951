// Rules of receives that have several buffers.
#include <fmt/format.h>

#include <array>
#include <vector>

#include "bench/check/host.h"
#include "bench/check/rule.h"
#include "bench/perf/pattern.h"

namespace pacecar::check {
namespace {

using perf::fill_pattern;
using perf::find_mismatch;

size_t buffers_of(Host& host) {
  host.start();
  const auto buffers = static_cast<size_t>(host.properties(host.device()).max_receives);
  if (buffers < 2) throw NotOffered("maxRecvs is 1: its receives have one buffer");
  return buffers;
}

void tags_choose_buffers(Host& host) {
  constexpr size_t kRounds = 4;
  constexpr size_t kBytes = 20'000;
  const size_t buffers = buffers_of(host);
  host.over_connection([&](const Ends& ends) {
    const Buffer source(host, ends.send, kRounds * buffers * kBytes);
    const Buffer target(host, ends.receive, kRounds * buffers * kBytes);
    const auto place = [&](size_t round, size_t i) { return (round * buffers + i) * kBytes; };
    std::vector<void*> receiving;
    for (size_t round = 0; round < kRounds; ++round) {
      std::vector<Part> parts;
      for (size_t i = 0; i < buffers; ++i) {
        parts.push_back(target.part(place(round, i), kBytes, static_cast<int>(100 + i)));
      }
      receiving.push_back(host.receive(ends.receive, parts));
    }
    std::vector<void*> sending;
    for (size_t round = 0; round < kRounds; ++round) {
      for (size_t k = 0; k < buffers; ++k) {
        const size_t chosen = (buffers - 1 - k + round) % buffers;  // not as posted
        const Part part =
            source.part(place(round, chosen), kBytes - 10 * chosen, static_cast<int>(100 + chosen));
        fill_pattern(part.data, round * buffers + chosen);
        sending.push_back(host.send(ends.send, part));
      }
    }
    sending.insert(sending.begin(), receiving.begin(), receiving.end());
    const std::vector<std::vector<int>> all_sizes = host.finish(sending);
    for (size_t round = 0; round < kRounds; ++round) {
      const std::vector<int>& sizes = all_sizes[round];
      for (size_t i = 0; i < buffers; ++i) {
        const size_t size = kBytes - 10 * i;
        expect(sizes[i] == static_cast<int>(size),
               "a receive of several buffers mixes their sizes");
        expect(!find_mismatch(target.part(place(round, i), size).data, round * buffers + i),
               "a message is in the buffer of another tag");
      }
    }
  });
}

// One message and the buffer that it must go to.
struct Message {
  size_t receive = 0;
  size_t index = 0;  // of its buffer in that receive
  size_t size = 0;
  int tag = 0;
  size_t place = 0;  // offset in the registered memory of both ends
};

constexpr size_t kMost = 1U << 20;  // bytes of a message

// Receives of 1, 1, 2, 1, 3, 1, ... buffers of 0 B to 1 MiB. Buffers of one receive that have the
// same tag are filled in order. Each tag is used in several receives.
std::vector<std::vector<Message>> mixed_messages(size_t buffers) {
  constexpr std::array<size_t, 5> kSizes = {100, 0, 40'000, kMost, 4096};
  std::vector<std::vector<Message>> receives;
  size_t number = 0;
  for (size_t k = 0; k < 2 * buffers; ++k) {
    std::vector<Message>& one = receives.emplace_back();
    const size_t count = k % 2 == 0 ? k / 2 + 1 : 1;
    for (size_t i = 0; i < count; ++i, ++number) {
      const size_t place = number * kMost;
      one.push_back({k, i, kSizes[number % kSizes.size()], static_cast<int>(i / 2), place});
    }
  }
  return receives;
}

void groups_are_mixed(Host& host) {
  const auto receives = mixed_messages(buffers_of(host));
  const size_t bytes = receives.back().back().place + kMost;
  host.over_connection([&](const Ends& ends) {
    const Buffer source(host, ends.send, bytes);
    const Buffer target(host, ends.receive, bytes);
    std::vector<void*> requests;
    for (const auto& receive : receives) {
      std::vector<Part> parts;
      for (const Message& one : receive) {
        parts.push_back(target.part(one.place, one.size, one.tag));
      }
      requests.push_back(host.receive(ends.receive, parts));
    }
    for (const auto& receive : receives) {
      const int last = receive.back().tag;
      for (int tag = last; tag >= 0; --tag) {  // not as posted
        for (const Message& one : receive) {
          if (one.tag != tag) continue;
          const Part part = source.part(one.place, one.size, tag);
          fill_pattern(part.data, one.place);
          requests.push_back(host.send(ends.send, part));
        }
      }
    }
    const std::vector<std::vector<int>> sizes = host.finish(requests);
    for (const auto& receive : receives) {
      for (const Message& one : receive) {
        expect(sizes[one.receive][one.index] == static_cast<int>(one.size),
               fmt::format("a receive of {} buffers mixes their sizes", receive.size()));
        expect(!find_mismatch(target.part(one.place, one.size).data, one.place),
               fmt::format("of a receive of {} buffers, one has wrong bytes", receive.size()));
      }
    }
  });
}

constexpr std::array kRules = {
    Rule{"tags", "tags choose among the buffers of a receive", 1, tags_choose_buffers},
    Rule{"groups", "receives have 1 to maxRecvs buffers of any size, also of the same tag", 1,
         groups_are_mixed},
};

}  // namespace

std::span<const Rule> group_rules() { return kRules; }

}  // namespace pacecar::check
