// Rules of requests: which bytes arrive, which results test() reports, receives of several buffers.
#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <string_view>
#include <vector>

#include "bench/check/host.h"
#include "bench/perf/pattern.h"
#include "net_plugin/host/line_poller.h"

namespace pacecar::check {
namespace {

using perf::fill_pattern;
using perf::find_mismatch;

constexpr size_t kDepth = nccl::kMaxRequestsPerConnection;
constexpr size_t kDepthV6 = 8;

size_t depth_of(const Host& host) { return host.net().version == 6 ? kDepthV6 : kDepth; }

void every_size_arrives(Host& host) {
  constexpr size_t kMost = (8U << 20) + 3;
  host.over_connection(kMost, [&](const Loop& loop) {
    uint64_t number = 0;
    for (const size_t size : {size_t{1}, size_t{7}, size_t{8}, size_t{127}, size_t{4095},
                              size_t{4096}, size_t{65'537}, size_t{1} << 20, kMost}) {
      fill_pattern(loop.source.bytes().first(size), ++number);
      expect(loop.pass(size, size) == static_cast<int>(size),
             fmt::format("a receive of {} bytes reports another size", size));
      const auto wrong = find_mismatch(loop.target.bytes().first(size), number);
      expect(!wrong,
             fmt::format("of {} bytes that arrived, byte {} is wrong", size, wrong ? *wrong : 0));
    }
  });
}

void nothing_is_an_operation(Host& host) {
  constexpr size_t kBytes = 4096;
  host.over_connection(kBytes, [&](const Loop& loop) {
    fill_pattern(loop.target.bytes(), 1);
    for (const size_t posted : {size_t{0}, kBytes}) {
      expect(loop.pass(0, posted) == 0, "a message of 0 bytes reports another size");
    }
    expect(!find_mismatch(loop.target.bytes(), 1), "a message of 0 bytes changes the buffer");
  });
}

// Whether all bytes from `first` on match the pattern of message `number`.
bool keeps_pattern(std::span<const uint8_t> bytes, size_t first, uint64_t number) {
  std::vector<uint8_t> pattern(bytes.size());
  fill_pattern(pattern, number);
  return std::ranges::equal(bytes.subspan(first), std::span(pattern).subspan(first));
}

void short_messages_report_their_size(Host& host) {
  constexpr size_t kSent = 5000;
  constexpr size_t kPosted = 1 << 20;
  host.over_connection(kPosted, [&](const Loop& loop) {
    fill_pattern(loop.source.bytes().first(kSent), 1);
    fill_pattern(loop.target.bytes(), 2);
    expect(loop.pass(kSent, kPosted) == static_cast<int>(kSent),
           "a receive reports the posted size, not the sent one");
    expect(!find_mismatch(loop.target.bytes().first(kSent), 1), "the received bytes are wrong");
    expect(keeps_pattern(loop.target.bytes(), kSent, 2),
           "bytes after the end of a short message change");
  });
}

// As many as NCCL has in flight, all of them posted before the first is sent.
void requests_in_flight(Host& host) {
  constexpr size_t kBytes = 100'000;
  const size_t depth = depth_of(host);
  host.over_connection(depth * kBytes, [&](const Loop& loop) {
    for (uint64_t round = 0; round < 3; ++round) {
      std::vector<void*> receiving;
      std::vector<void*> sending;
      for (size_t i = 0; i < depth; ++i) {
        receiving.push_back(host.receive(loop.ends.receive, loop.target.part(i * kBytes, kBytes)));
      }
      for (size_t i = 0; i < depth; ++i) {
        const Part part = loop.source.part(i * kBytes, kBytes);
        fill_pattern(part.data, round * depth + i);
        sending.push_back(host.send(loop.ends.send, part));
      }
      for (size_t i = 0; i < depth; ++i) {
        host.finish(receiving[i], sending[i]);
        expect(!find_mismatch(loop.target.part(i * kBytes, kBytes).data, round * depth + i),
               "messages of one connection arrive out of order");
      }
    }
  });
}

// Posts until the plugin returns no request ("try again later"). The plugin may return an error for
// more requests than NCCL has in flight.
template <typename Post>
std::deque<void*> post_until_full(size_t depth, const Post& post) {
  constexpr size_t kMore = 4;  // times what may be in flight
  std::deque<void*> requests;
  while (requests.size() < kMore * depth) {
    void* request = nullptr;
    const nccl::NcclResult result = post(&request);
    if (result != nccl::NcclResult::kSuccess && requests.size() >= depth) break;
    expect_success(result, fmt::format("request {} in flight", requests.size() + 1));
    expect(request != nccl::kGarbage, "the request is not written: NULL means 'try again later'");
    if (request == nullptr) break;
    requests.push_back(request);
  }
  return requests;
}

// The plugin writes the request of every call, whether its queue is full or not.
void full_means_null(Host& host) {
  constexpr size_t kBytes = 64;
  host.over_connection(kBytes, [&](const Loop& loop) {
    const Part sent = loop.source.whole();
    const Part posted = loop.target.whole();
    auto sending = post_until_full(depth_of(host), [&](void** request) {
      return host.post_send(loop.ends.send, sent, request);
    });
    auto receiving = post_until_full(depth_of(host), [&](void** request) {
      return host.post_receive(loop.ends.receive, std::span(&posted, 1), request);
    });
    expect(receiving.size() >= depth_of(host),
           fmt::format("only {} receives can be posted", receiving.size()));
    while (!sending.empty() || !receiving.empty()) {
      if (sending.empty()) sending.push_back(host.send(loop.ends.send, sent));
      if (receiving.empty()) receiving.push_back(host.receive(loop.ends.receive, posted));
      host.finish(receiving.front(), sending.front());
      receiving.pop_front();
      sending.pop_front();
    }
  });
}

// For LL and LL128 NCCL writes 1 into the request before the call.
void completion_may_be_optional(Host& host) {
  constexpr size_t kBytes = 4096;
  host.over_connection(kBytes, [&](const Loop& loop) {
    for (uint64_t i = 0; i < 8; ++i) {
      fill_pattern(loop.source.bytes(), i);
      void* request = nullptr;
      poll_until("a request for irecv with the hint", [&] {
        request = host.try_receive(loop.ends.receive, loop.target.whole(),
                                   reinterpret_cast<void*>(nccl::kOptionalCompletion));
        return request != nullptr;
      });
      host.finish(request, host.send(loop.ends.send, loop.source.whole()));
      expect(!find_mismatch(loop.target.bytes(), i), "the received bytes are wrong");
    }
  });
}

// LL and LL128 need this order. A plugin without it excludes them by NCCL_PROTO, as a user does.
void flags_come_last(Host& host) {
  constexpr size_t kBytes = 64U << 10;
  constexpr int kRounds = 200;
  host.start();
  const char* const protocols = std::getenv("NCCL_PROTO");
  if (protocols != nullptr && strcasecmp(protocols, "simple") == 0) {
    throw NotOffered("NCCL_PROTO is Simple: NCCL uses neither LL nor LL128");
  }
  host.over_connection(kBytes, [&](const Loop& loop) {
    nccl::LinePoller gpu(loop.target.bytes());
    for (int round = 1; round <= kRounds; ++round) {
      std::ranges::fill(loop.source.bytes(), static_cast<uint8_t>(round));
      loop.pass(kBytes, kBytes);
    }
    const nccl::LinePoller::Sightings seen = gpu.stop();
    expect(seen.early == 0, "a flag is seen before the data of its line");
    expect(seen.torn == 0, "8 aligned bytes are seen half written");
    expect(seen.late == 0, "8 bytes are written again after their message has completed");
  });
}

// The sender's plugin is not called again after its last test().
void finished_sends_arrive(Host& host) {
  constexpr size_t kBytes = 4U << 20;
  void* const comm = host.connect_ranks();
  {
    const Buffer buffer(host, comm, kBytes);
    if (host.rank() == 0) {
      void* const request = host.receive(comm, buffer.whole());
      host.barrier();
      host.finish(request);
      expect(!find_mismatch(buffer.bytes(), 7), "the received bytes are wrong");
    } else {
      fill_pattern(buffer.bytes(), 7);
      host.barrier();
      host.finish(host.send(comm, buffer.whole()));
    }
    host.barrier();
  }
  host.close_rank(comm);
}

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

// Posts the receives, sends their messages in the given order, and checks the received bytes.
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
    {"sizes", "messages of 1 B to 8 MiB arrive whole, and report their size", every_size_arrives},
    {"empty", "a message of 0 bytes is an operation like any other", nothing_is_an_operation},
    {"short", "a receive may be larger than what is sent", short_messages_report_their_size},
    {"depth", "32 requests of a connection are in flight, in order (8 in version 6)",
     requests_in_flight},
    {"full", "isend and irecv write their request, NULL when full", full_means_null},
    {"optional-completion", "irecv takes the hint that its completion is of no interest",
     completion_may_be_optional},
    {"flags", "within a line of 128 bytes the last word is written last (LL128)", flags_come_last},
    {"unattended", "a send that test reported done arrives without further calls",
     finished_sends_arrive, 2},
    {"tags", "tags choose among the buffers of a receive", tags_choose_buffers},
    {"groups", "receives have 1 to maxRecvs buffers of any size, also of the same tag",
     groups_are_mixed},
};

}  // namespace

std::span<const Rule> transfer_rules() { return kRules; }

}  // namespace pacecar::check
