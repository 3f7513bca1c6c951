// The objects behind NCCL's void pointers, besides a communicator: a listener, either end of a
// connection, and its requests.
// A listener and an end hold the process's Context, so that an application that finalizes before it
// closes (after an abort) cannot destroy the engine of an open connection.
// Thread rule: one thread at a time calls isend, irecv and test of a connection (NCCL's progress
// thread). Other threads may register and deregister memory meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "net_plugin/abi/types.h"
#include "transport/api/pacecar.hpp"

namespace pacecar::plugin {

class Comm;

// NCCL tests a request without naming its connection, so the request refers to it.
struct CommRequest {
  Comm* comm = nullptr;
  Request* request = nullptr;
  std::optional<FlushId> flush;  // instead of `request`
  std::optional<ErrorCode> failed = {};
};

// The sending or the receiving end of a connection, with a fixed set of requests. One type, because
// NCCL registers memory with either end, and closes either.
class Comm {
 public:
  using Connection =
      std::variant<std::unique_ptr<SendConnection>, std::unique_ptr<ReceiveConnection>>;

  Comm(std::shared_ptr<Context> context, Connection connection);
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  Context& context() const { return *context_; }
  size_t nic() const { return nic_; }  // of the connection

  // *request stays nullptr when the connection is full.
  nccl::NcclResult isend(const void* data, size_t size, int tag, const Memory* memory,
                         CommRequest** request);
  nccl::NcclResult irecv(std::span<const ReceiveBuffer> buffers, CommRequest** request);
  // For a completed receive. *request stays nullptr if the GPU sees its bytes already.
  nccl::NcclResult iflush(std::span<const ReceiveBuffer> buffers, CommRequest** request);
  // `sizes` may be nullptr; else it gets one size per buffer once *done is 1. A request that is
  // done is freed. One that has failed fails again: NCCL 2.22 tests it once more.
  nccl::NcclResult test(CommRequest& request, int* done, int* sizes);

 private:
  Result<TestResult> poll(const CommRequest& request) const;
  // A dead peer fails every request of its connection: the same message is logged once.
  nccl::NcclResult report_once(const Error& error);
  CommRequest* take(Request* request, std::optional<FlushId> flush);  // One must be free.
  // Sets *request for a started operation; leaves it nullptr if the connection's queue is full.
  nccl::NcclResult track(const Result<Request*>& started, CommRequest** request);

  std::shared_ptr<Context> context_;
  Connection connection_;
  size_t nic_;
  std::vector<CommRequest> requests_;
  std::vector<CommRequest*> free_;
  std::string last_error_;
};

struct ListenComm {
  std::shared_ptr<Context> context;
  size_t nic;
  uint32_t weight;  // of the communicator
  std::unique_ptr<Listener> listener;
};

}  // namespace pacecar::plugin
