// Rules of receives that have several buffers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
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

// A message and the buffer that it must go to. `place`: its offset in the memory of both ends, and
// the number of its pattern.
struct Message {
  size_t receive = 0;
  size_t index = 0;  // of its buffer in that receive
  size_t posted = 0;
  size_t sent = 0;
  int tag = 0;
  size_t place = 0;
};
using Receive = std::vector<Message>;

// Posts the receives, sends their messages in the given order, and checks what has arrived.
void deliver(const Loop& loop, const std::vector<Receive>& receives,
             const std::vector<Message>& in_order, std::string_view wrong) {
  std::vector<void*> requests;
  for (const Receive& receive : receives) {
    std::vector<Part> parts;
    for (const Message& one : receive) {
      parts.push_back(loop.target.part(one.place, one.posted, one.tag));
    }
    requests.push_back(loop.host.receive(loop.ends.receive, parts));
  }
  for (const Message& one : in_order) {
    const Part part = loop.source.part(one.place, one.sent, one.tag);
    fill_pattern(part.data, one.place);
    requests.push_back(loop.host.send(loop.ends.send, part));
  }
  const std::vector<std::vector<int>> sizes = loop.host.finish(requests);
  for (const Message& one : in_order) {
    const size_t buffers = receives[one.receive].size();
    expect(sizes[one.receive][one.index] == static_cast<int>(one.sent),
           fmt::format("a receive of {} buffers mixes their sizes", buffers));
    expect(!find_mismatch(loop.target.part(one.place, one.sent).data, one.place),
           fmt::format("of a receive of {} buffers, {}", buffers, wrong));
  }
}

void tags_choose_buffers(Host& host) {
  constexpr size_t kRounds = 4;
  constexpr size_t kBytes = 20'000;
  const size_t buffers = buffers_of(host);
  std::vector<Receive> receives(kRounds);
  std::vector<Message> in_order;
  for (size_t round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < buffers; ++i) {
      receives[round].push_back({round, i, kBytes, kBytes - 10 * i, static_cast<int>(100 + i),
                                 (round * buffers + i) * kBytes});
    }
    for (size_t k = 0; k < buffers; ++k) {  // not as posted
      in_order.push_back(receives[round][(buffers - 1 - k + round) % buffers]);
    }
  }
  host.over_connection(kRounds * buffers * kBytes, [&](const Loop& loop) {
    deliver(loop, receives, in_order, "one has the message of another tag");
  });
}

// Receives of 1, 1, 2, 1, 3, 1, ... buffers of 0 B to 1 MiB. Buffers of one receive that have the
// same tag are filled in order. Each tag is used in several receives.
void groups_are_mixed(Host& host) {
  constexpr size_t kMost = 1U << 20;
  constexpr std::array<size_t, 5> kSizes = {100, 0, 40'000, kMost, 4096};
  std::vector<Receive> receives(2 * buffers_of(host));
  std::vector<Message> in_order;
  size_t number = 0;
  for (size_t k = 0; k < receives.size(); ++k) {
    Receive& receive = receives[k];
    const size_t count = k % 2 == 0 ? k / 2 + 1 : 1;
    for (size_t i = 0; i < count; ++i, ++number) {
      const size_t size = kSizes[number % kSizes.size()];
      receive.push_back({k, i, size, size, static_cast<int>(i / 2), number * kMost});
    }
    for (int tag = receive.back().tag; tag >= 0; --tag) {  // not as posted
      std::ranges::copy_if(receive, std::back_inserter(in_order),
                           [tag](const Message& one) { return one.tag == tag; });
    }
  }
  host.over_connection(number * kMost, [&](const Loop& loop) {
    deliver(loop, receives, in_order, "one has wrong bytes");
  });
}

constexpr Rule kRules[] = {
    {"tags", "tags choose among the buffers of a receive", tags_choose_buffers},
    {"groups", "receives have 1 to maxRecvs buffers of any size, also of the same tag",
     groups_are_mixed},
};

}  // namespace

std::span<const Rule> group_rules() { return kRules; }

}  // namespace pacecar::check
