// What is behind NCCL's void pointers: a communicator, from init to finalize; a listener; either
// end of a connection, and its requests. And the Context that all of them share.
//
// A process has one Context, opened by the first init and destroyed by the last finalize. A
// listener and an end hold it too, so that an application that finalizes before it closes (after an
// abort) cannot destroy the engine of an open connection. A later init opens a new one.
//
// NCCL calls connect() until the connection is there, each time with the same copy of the
// listener's handle. The attempt is found by the address of that copy, which NCCL keeps for all
// calls of one attempt, and by its bytes, because NCCL reuses the memory for another handle after
// it has given up an attempt. The table belongs to the communicator, so finalize frees abandoned
// attempts.
//
// Hints: a communicator has the weight that PACECAR_WEIGHT had at its init. The NICs expect the
// senders of the communicator that expects most of them, as it is not known which communicators
// work at the same time. The packets of all have the traffic class of the first one.
//
// Thread rule: any thread; but one thread at a time calls isend, irecv and test of a connection
// (NCCL's progress thread).
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
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
  void* event = nullptr;         // of NCCL's profiler (profiler/net_events.h)
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
  size_t nic() const { return nic_; }  // the connection's

  // *request stays nullptr when the connection is full.
  nccl::NcclResult isend(const void* data, size_t size, int tag, const Memory* memory,
                         CommRequest** request);
  nccl::NcclResult irecv(std::span<const ReceiveBuffer> buffers, CommRequest** request);
  // For a completed receive. *request stays nullptr if the GPU sees its bytes already.
  nccl::NcclResult iflush(std::span<const ReceiveBuffer> buffers, CommRequest** request);
  // `sizes` may be nullptr; else it gets one size per buffer once *done is 1. A request that is
  // done or failed is freed.
  nccl::NcclResult test(CommRequest& request, int* done, int* sizes);

 private:
  Result<TestResult> poll(const CommRequest& request) const;
  // A dead peer fails every request of its connection: the same message is logged once.
  nccl::NcclResult report_once(const Error& error);
  // One must be free.
  CommRequest* take(Request* request, std::optional<FlushId> flush);
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
  uint32_t weight;  // the communicator's
  std::unique_ptr<Listener> listener;
};

class Communicator {
 public:
  Communicator(std::shared_ptr<Context> context, uint32_t weight)
      : context_(std::move(context)), weight_(weight) {}
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  Result<std::unique_ptr<ListenComm>> listen(size_t nic) const;
  // `handle` is NCCL's copy of a handle. An empty pointer means "not yet, call again".
  Result<std::unique_ptr<SendConnection>> connect(size_t nic, const void* handle);
  // Peers that may send to us at once; 0: unknown. Cheap.
  void expect(uint32_t senders);
  // Logs it if data packets do not have this traffic class, the same one once.
  void check_traffic_class(std::optional<uint32_t> wanted);

  const std::shared_ptr<Context>& context() const { return context_; }

 private:
  struct Attempt {
    const void* address;
    size_t nic;
    std::array<uint8_t, Handle::kBytes> bytes;
    auto operator<=>(const Attempt&) const = default;
  };

  std::shared_ptr<Context> context_;
  const uint32_t weight_;
  std::atomic<uint32_t> reported_class_{~0U};  // by check_traffic_class; at first none
  std::mutex mutex_;                           // guards attempts_
  std::map<Attempt, std::unique_ptr<Connecting>> attempts_;
};

// The IP header's traffic class byte without its ECN bits, which applications must not set.
// nullopt: none is requested, or an invalid one, which is logged.
std::optional<uint32_t> checked_traffic_class(int given);
// Logs it if the data packets of `context` do not have the traffic class `wanted`.
void check_traffic_class(const Context& context, std::optional<uint32_t> wanted);

// Joins the process's Context, and opens it when this is the first communicator. `traffic_class` is
// of data packets, unless PACECAR_TC is set; nullopt: none requested.
Result<std::unique_ptr<Communicator>> open_communicator(std::optional<uint32_t> traffic_class);
void close_communicator(std::unique_ptr<Communicator> communicator);

// Bonds these NICs of the open Context, and of every later one. Returns the bond's number.
Result<size_t> make_bond(std::span<const int> nics);

// The Context of the open communicators; nullptr when there are none.
std::shared_ptr<Context> current_context();

}  // namespace pacecar::plugin
