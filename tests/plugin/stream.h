// A stream of messages between two ranks, until one fails.
#pragma once

#include <vector>

#include "tests/plugin/plugin_test.h"

namespace pacecar::test {

inline constexpr size_t kStreamBytes = 1U << 20;  // of a message
inline constexpr size_t kStreamRequests = 16;     // at once

inline nccl::NcclResult try_post(const FakeNcclHost& host, const Rank& rank, void* comm,
                                 const Buffer& buffer, size_t part, void** request) {
  const Part posted = buffer.part(part * kStreamBytes, kStreamBytes);
  return rank.rank() == 0 ? host.post_receive(comm, std::span(&posted, 1), request)
                          : host.post_send(comm, posted, request);
}

// Streams until a request fails or `enough` requests are done; returns the last result.
inline nccl::NcclResult stream(const FakeNcclHost& host, const Rank& rank, void* comm,
                               const Buffer& buffer, size_t enough) {
  std::vector<void*> requests(kStreamRequests, nullptr);
  nccl::NcclResult result = nccl::NcclResult::kSuccess;
  size_t completed = 0;
  poll_until("the stream's end", [&] {
    for (size_t i = 0; i < kStreamRequests && result == nccl::NcclResult::kSuccess; ++i) {
      const size_t next = (completed + i) % kStreamRequests;
      if (requests[next] != nullptr) continue;
      result = try_post(host, rank, comm, buffer, next, &requests[next]);
    }
    void*& oldest = requests[completed % kStreamRequests];
    int done = 0;
    int size = 0;
    if (result == nccl::NcclResult::kSuccess && oldest != nullptr) {
      result = host.net().test(oldest, &done, &size);
      if (result != nccl::NcclResult::kSuccess) {
        EXPECT_EQ(host.net().test(oldest, &done, &size), result) << "as NCCL 2.22 does";
      }
    }
    if (done == 1) {
      oldest = nullptr;
      ++completed;
    }
    return result != nccl::NcclResult::kSuccess || completed == enough;
  });
  return result;
}

}  // namespace pacecar::test
