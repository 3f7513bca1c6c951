// Plays NCCL for bench/nccl/gpu, without a GPU: ranks are processes that exchange floats through a
// file that all map. fake_driver.cc plays CUDA.
//
// FAKE_NCCL sets a fault, on all ranks or on rank 1:
//   wrong     rank 1 gets one element of each result wrong
//   hang      rank 1 stops in an operation      error   rank 1's operations fail
//   network=X the log says network X, whatever NCCL_NET says
//   path=X    the log says that ranks are joined by X (P2P, SHM), not by the network
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "bench/nccl/gpu/libraries.h"

using pacecar::nccl::kSuccess;
using pacecar::nccl::Stream;
using pacecar::nccl::UniqueId;

struct FakeCommunicator;
struct Meeting {
  std::atomic<int> arrived;
  std::atomic<int> generation;
};

namespace {

constexpr size_t kMaxRanks = 16;
constexpr size_t kPerPeer = 1 << 24;  // bytes from one rank to another in one operation
constexpr size_t kSlot = kMaxRanks * kPerPeer;
constexpr size_t kHeader = 4096;
constexpr size_t kBytes = kHeader + kMaxRanks * kSlot;
constexpr int kNcclVersion = 22809;
constexpr int kSystemError = 2;

std::string fault() {
  const char* text = std::getenv("FAKE_NCCL");
  return text ? text : "";
}

// The value of the fault `key=VALUE`.
std::string fault_value(const std::string& key) {
  const std::string text = fault();
  return text.starts_with(key + "=") ? text.substr(key.size() + 1) : "";
}

const char* variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

struct Transfer {
  int peer;
  const char* from;
  char* to;
  size_t bytes;
};
FakeCommunicator* grouped = nullptr;  // of the open group, once it has an operation

}  // namespace

struct FakeCommunicator {
  int rank;
  int ranks;
  char* memory;
  std::vector<Transfer> group;

  float* slot(int owner) const {
    return reinterpret_cast<float*>(memory + kHeader + static_cast<size_t>(owner) * kSlot);
  }

  void meet() const {
    Meeting& meeting = *reinterpret_cast<Meeting*>(memory);
    const int generation = meeting.generation.load();
    if (meeting.arrived.fetch_add(1) + 1 == ranks) {
      meeting.arrived.store(0);
      meeting.generation.fetch_add(1);
    }
    while (meeting.generation.load() == generation) sched_yield();
  }

  // One operation: `put` fills this rank's slot, `get` reads the others'.
  template <class Put, class Get>
  int exchange(void* result, size_t result_count, Put put, Get get) {
    if (rank == 1 && fault() == "hang") pause();
    if (rank == 1 && fault() == "error") return kSystemError;
    put();
    meet();
    get();
    meet();
    if (rank == 1 && fault() == "wrong" && result_count > 0) {
      static_cast<float*>(result)[result_count / 2] += 1;
    }
    return kSuccess;
  }

  void put(const void* data, size_t count) const {
    if (count * sizeof(float) > kSlot) std::abort();
    std::memcpy(slot(rank), data, count * sizeof(float));
  }

  void sum(void* result, size_t first, size_t count) const {
    auto* sums = static_cast<float*>(result);
    std::fill_n(sums, count, 0.0F);
    for (int owner = 0; owner < ranks; ++owner) {
      for (size_t i = 0; i < count; ++i) sums[i] += slot(owner)[first + i];
    }
  }

  void copy(void* result, int owner, size_t count) const {
    std::memcpy(result, slot(owner), count * sizeof(float));
  }

  void write_log() const {
    const std::string named = fault_value("network");
    const std::string path = fault_value("path");
    const std::string network = named.empty() ? variable("NCCL_NET") : named;
    std::ofstream log(variable("NCCL_DEBUG_FILE"));
    if (network == "Pacecar") {
      log << "NCCL INFO NET/Pacecar : Pacecar on " << variable("PACECAR_NICS") << " (fake)\n";
    }
    log << "NCCL INFO Using network " << network << "\n";
    log << "NCCL INFO Channel 00/0 : 0[0] -> 1[0] via "
        << (path.empty() ? "NET/" + network + "/0" : path) << "\n";
  }
};

extern "C" {

const char* ncclGetErrorString(int) { return "unhandled system error"; }
int ncclGetVersion(int* version) {
  *version = kNcclVersion;
  return kSuccess;
}
int ncclGetUniqueId(UniqueId* id) {
  const auto path = std::filesystem::temp_directory_path() / "fake-nccl-XXXXXX";
  std::strncpy(id->internal, path.c_str(), sizeof(id->internal) - 1);
  const int file = mkstemp(id->internal);
  const bool made = file >= 0 && ftruncate(file, kBytes) == 0;
  close(file);
  return made ? kSuccess : kSystemError;
}
int ncclCommInitRank(FakeCommunicator** comm, int ranks, UniqueId id, int rank) {
  const int file = open(id.internal, O_RDWR | O_CLOEXEC);
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return kSystemError;
  *comm = new FakeCommunicator{rank, ranks, static_cast<char*>(memory), {}};
  (*comm)->write_log();
  (*comm)->meet();
  if (rank == 0) unlink(id.internal);
  return kSuccess;
}
int ncclCommDestroy(FakeCommunicator* comm) {
  munmap(comm->memory, kBytes);
  delete comm;
  return kSuccess;
}
int ncclCommGetAsyncError(FakeCommunicator*, int* error) {
  *error = kSuccess;
  return kSuccess;
}
int ncclAllReduce(const void* send, void* receive, size_t count, int, int, FakeCommunicator* comm,
                  Stream) {
  return comm->exchange(
      receive, count, [&] { comm->put(send, count); }, [&] { comm->sum(receive, 0, count); });
}
int ncclAllGather(const void* send, void* receive, size_t count, int, FakeCommunicator* comm,
                  Stream) {
  const auto get = [&] {
    for (int owner = 0; owner < comm->ranks; ++owner) {
      comm->copy(static_cast<float*>(receive) + static_cast<size_t>(owner) * count, owner, count);
    }
  };
  return comm->exchange(
      receive, count, [&] { comm->put(send, count); }, get);
}
int ncclReduceScatter(const void* send, void* receive, size_t count, int, int,
                      FakeCommunicator* comm, Stream) {
  return comm->exchange(
      receive, count, [&] { comm->put(send, count * static_cast<size_t>(comm->ranks)); },
      [&] { comm->sum(receive, static_cast<size_t>(comm->rank) * count, count); });
}
int ncclBroadcast(const void* send, void* receive, size_t count, int, int root,
                  FakeCommunicator* comm, Stream) {
  return comm->exchange(
      receive, count, [&] { comm->put(send, count); }, [&] { comm->copy(receive, root, count); });
}
int ncclReduce(const void* send, void* receive, size_t count, int, int, int root,
               FakeCommunicator* comm, Stream) {
  const bool gets = comm->rank == root;
  return comm->exchange(
      receive, gets ? count : 0, [&] { comm->put(send, count); },
      [&] {
        if (gets) comm->sum(receive, 0, count);
      });
}
int ncclSend(const void* send, size_t count, int, int peer, FakeCommunicator* comm, Stream) {
  grouped = comm;
  comm->group.push_back({peer, static_cast<const char*>(send), nullptr, count * sizeof(float)});
  return kSuccess;
}
int ncclRecv(void* receive, size_t count, int, int peer, FakeCommunicator* comm, Stream) {
  grouped = comm;
  comm->group.push_back({peer, nullptr, static_cast<char*>(receive), count * sizeof(float)});
  return kSuccess;
}
int ncclGroupStart() { return kSuccess; }
int ncclGroupEnd() {
  FakeCommunicator& comm = *grouped;
  const auto place = [&](int from, int to) {
    return reinterpret_cast<char*>(comm.slot(from)) + static_cast<size_t>(to) * kPerPeer;
  };
  char* last = nullptr;
  const auto put = [&] {
    for (const Transfer& one : comm.group) {
      if (one.bytes > kPerPeer) std::abort();
      if (one.from) std::memcpy(place(comm.rank, one.peer), one.from, one.bytes);
      if (one.to) last = one.to;
    }
  };
  const auto get = [&] {
    for (const Transfer& one : comm.group) {
      if (one.to) std::memcpy(one.to, place(one.peer, comm.rank), one.bytes);
    }
    if (comm.rank == 1 && fault() == "wrong") last[0] = static_cast<char>(last[0] ^ 1);
  };
  const int result = comm.exchange(nullptr, 0, put, get);
  comm.group.clear();
  return result;
}

}  // extern "C"
