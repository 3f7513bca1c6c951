// Plays NCCL for a net plugin: loads it as NCCL does and calls its table with NCCL's habits
// (uninitialised outputs, polls without sleeping, sizes that exceed what is sent).
//
// What cannot go on throws HostError, which ends the test with its sentence; results that a test
// wants to judge are returned.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "net_plugin/abi/any_net.h"

namespace pacecar::test {

class HostError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

using HandleBytes = std::array<uint8_t, nccl::kHandleBytes>;

struct LogLine {
  nccl::LogSeverity severity;
  std::string text;
};
// The lines logged so far, in this process; any thread.
std::vector<LogLine> logged_lines();
bool was_logged(nccl::LogSeverity severity, const std::string& part);

// Calls `step` until it is true; throws when that takes longer than the tests' patience.
void poll_until(const std::string& what, const std::function<bool()>& step);

// The bytes of message `seed`, and how many of `data` differ from them.
void fill(std::span<uint8_t> data, uint64_t seed);
size_t count_wrong(std::span<const uint8_t> data, uint64_t seed);

// Both ends of a connection of this process to itself.
struct ConnectionPair {
  void* send = nullptr;
  void* receive = nullptr;
};

struct Listening {
  HandleBytes handle{};
  void* comm = nullptr;
};

// One communicator over one loaded plugin.
class FakeNcclHost {
 public:
  // The table of PLUGIN_TEST_VERSION, or the newest.
  explicit FakeNcclHost(const std::string& plugin_path);
  FakeNcclHost(const std::string& plugin_path, int version);
  ~FakeNcclHost();  // finalizes and unloads
  FakeNcclHost(const FakeNcclHost&) = delete;
  FakeNcclHost& operator=(const FakeNcclHost&) = delete;

  const nccl::AnyNet& net() const { return *net_; }
  void* context() const { return context_; }

  nccl::NcclResult init(int traffic_class = nccl::kUndefined);
  void finalize();

  Listening listen(int device = 0);
  // One call; nullptr means "not yet". `handle` must be the same object for all calls of an
  // attempt.
  void* try_connect(HandleBytes& handle, int device = 0);
  void* try_accept(void* listen_comm);
  void* connect(HandleBytes handle);
  void* accept(void* listen_comm);
  ConnectionPair connect_to_self();
  void close(const ConnectionPair& pair);

 private:
  void* library_ = nullptr;
  std::unique_ptr<nccl::AnyNet> net_;
  void* context_ = nullptr;
};

// Pages of their own, registered with one end of a connection.
class HostBuffer {
 public:
  HostBuffer(const FakeNcclHost& host, void* comm, size_t bytes);
  ~HostBuffer();  // deregisters and unmaps
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;

  std::span<uint8_t> bytes() const { return {data_, bytes_}; }
  void* memory() const { return memory_; }
  void deregister();
  // From here on every access is a fault, as after free().
  void forbid_access();

 private:
  const nccl::AnyNet& net_;
  void* comm_;
  size_t bytes_;
  uint8_t* data_;
  void* memory_ = nullptr;
};

struct Posted {
  std::span<uint8_t> data;
  int tag = 0;
  void* memory = nullptr;
};

// One call; a request of nullptr means "again later".
nccl::NcclResult try_send(const FakeNcclHost& host, void* comm, const Posted& message,
                          void** request);
nccl::NcclResult try_receive(const FakeNcclHost& host, void* comm, std::span<const Posted> buffers,
                             void** request);
// Until there is a request.
void* send(const FakeNcclHost& host, void* comm, const Posted& message);
void* receive(const FakeNcclHost& host, void* comm, std::span<const Posted> buffers);
void* receive(const FakeNcclHost& host, void* comm, const Posted& buffer);

// Tests until done or failed; `sizes` gets one figure per buffer.
nccl::NcclResult wait(const FakeNcclHost& host, void* request, std::vector<int>* sizes = nullptr);
// Tests until done; throws when the request fails. Returns the first size.
int complete(const FakeNcclHost& host, void* request);

}  // namespace pacecar::test
