// Collectives as NCCL builds them from sends and receives, with every element checked.
#include <algorithm>
#include <numeric>

#include "tests/plugin/plugin_test.h"

namespace pacecar::test {
namespace {

constexpr size_t kSliceElements = 16'384;
constexpr size_t kSlicesInFlight = 4;

uint32_t element(int rank, size_t index) {
  return static_cast<uint32_t>(index) * 2'654'435'761U + static_cast<uint32_t>(rank) * 97U;
}

std::span<uint8_t> as_bytes(std::span<uint32_t> elements) {
  return {reinterpret_cast<uint8_t*>(elements.data()), elements.size_bytes()};
}

std::span<uint32_t> as_elements(const Buffer& buffer) {
  return {reinterpret_cast<uint32_t*>(buffer.bytes().data()), buffer.bytes().size() / 4};
}

// Connections from this rank to every other and back, by rank.
struct Mesh {
  Mesh(FakeNcclHost& on, Rank& rank, const std::vector<int>& send_to,
       const std::vector<int>& receive_from)
      : host(on), sends(static_cast<size_t>(rank.size())), receives(sends.size()) {
    std::vector<Listening> listening(sends.size());
    std::vector<HandleBytes> handles(sends.size());
    for (const int peer : receive_from) {
      listening[index(peer)] = host.listen();
      rank.give(peer, listening[index(peer)].handle);
    }
    for (const int peer : send_to) handles[index(peer)] = rank.take(peer);
    poll_until("the mesh", [&] {
      bool ready = true;
      for (const int peer : send_to) {
        void*& comm = sends[index(peer)];
        if (comm == nullptr) comm = host.try_connect(handles[index(peer)]);
        ready &= comm != nullptr;
      }
      for (const int peer : receive_from) {
        void*& comm = receives[index(peer)];
        if (comm == nullptr) comm = host.try_accept(listening[index(peer)].comm);
        ready &= comm != nullptr;
      }
      return ready;
    });
    for (const int peer : receive_from) host.close_listen(listening[index(peer)].comm);
  }

  ~Mesh() {
    for (void* comm : sends) {
      if (comm != nullptr) host.net().closeSend(comm);
    }
    for (void* comm : receives) {
      if (comm != nullptr) host.net().closeRecv(comm);
    }
  }
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  static size_t index(int peer) { return static_cast<size_t>(peer); }

  FakeNcclHost& host;
  std::vector<void*> sends;
  std::vector<void*> receives;
};

// One step of a ring: sends `out` while it receives as much into `in`, in slices.
void exchange(Mesh& mesh, Rank& rank, const Buffer& out_buffer, std::span<uint32_t> out,
              const Buffer& in_buffer, std::span<uint32_t> in) {
  void* const to = mesh.sends[Mesh::index(rank.next())];
  void* const from = mesh.receives[Mesh::index(rank.previous())];
  const auto slice = [](std::span<uint32_t> part, size_t i) {
    const size_t begin = std::min(i * kSliceElements, part.size());
    return as_bytes(part.subspan(begin, std::min(kSliceElements, part.size() - begin)));
  };
  const size_t slices = (std::max(out.size(), in.size()) + kSliceElements - 1) / kSliceElements;
  std::vector<void*> sending;
  std::vector<void*> receiving;
  for (size_t i = 0; i < slices + kSlicesInFlight; ++i) {
    if (i < slices) {
      receiving.push_back(mesh.host.receive(from, {slice(in, i), 0, in_buffer.memory()}));
      sending.push_back(mesh.host.send(to, {slice(out, i), 0, out_buffer.memory()}));
    }
    if (i < kSlicesInFlight) continue;
    const size_t oldest = i - kSlicesInFlight;
    if (oldest >= slices) continue;
    EXPECT_EQ(mesh.host.finish(receiving[oldest]), static_cast<int>(slice(in, oldest).size()));
    mesh.host.finish(sending[oldest]);
  }
}

void all_reduce(Rank& rank, size_t elements) {
  const auto host = start_host();
  Mesh mesh(*host, rank, {rank.next()}, {rank.previous()});
  {
    const Buffer data(*host, mesh.sends[Mesh::index(rank.next())], elements * 4);
    const Buffer result(*host, mesh.receives[Mesh::index(rank.previous())], elements * 4);
    const std::span<uint32_t> own = as_elements(data);
    const std::span<uint32_t> arrived = as_elements(result);
    for (size_t i = 0; i < elements; ++i) own[i] = element(rank.rank(), i);

    const auto ranks = static_cast<size_t>(rank.size());
    const auto part = [&](std::span<uint32_t> all, int index) {
      const size_t p = static_cast<size_t>(index + 2 * rank.size()) % ranks;
      const size_t begin = elements * p / ranks;
      return all.subspan(begin, elements * (p + 1) / ranks - begin);
    };
    for (int step = 0; step < rank.size() - 1; ++step) {  // reduce-scatter
      const std::span<uint32_t> in = part(arrived, rank.rank() - step - 1);
      exchange(mesh, rank, data, part(own, rank.rank() - step), result, in);
      const std::span<uint32_t> sum = part(own, rank.rank() - step - 1);
      std::transform(sum.begin(), sum.end(), in.begin(), sum.begin(), std::plus<>());
    }
    for (int step = 0; step < rank.size() - 1; ++step) {  // all-gather
      const std::span<uint32_t> in = part(arrived, rank.rank() - step);
      exchange(mesh, rank, data, part(own, rank.rank() - step + 1), result, in);
      std::copy(in.begin(), in.end(), part(own, rank.rank() - step).begin());
    }

    size_t wrong = 0;
    for (size_t i = 0; i < elements; ++i) {
      uint32_t expected = 0;
      for (int r = 0; r < rank.size(); ++r) expected += element(r, i);
      wrong += own[i] != expected;
    }
    EXPECT_EQ(wrong, 0U) << "rank " << rank.rank();
    rank.barrier();
  }
}

void all_to_all(Rank& rank, size_t elements) {
  const auto host = start_host();
  std::vector<int> others;
  for (int peer = 0; peer < rank.size(); ++peer) {
    if (peer != rank.rank()) others.push_back(peer);
  }
  Mesh mesh(*host, rank, others, others);
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<void*> requests;
  std::vector<std::pair<int, Buffer*>> arriving;
  for (const int peer : others) {
    void* const from = mesh.receives[Mesh::index(peer)];
    Buffer& in = *buffers.emplace_back(std::make_unique<Buffer>(*host, from, elements * 4));
    requests.push_back(host->receive(from, in.whole()));
    arriving.emplace_back(peer, &in);
  }
  for (const int peer : others) {
    void* const to = mesh.sends[Mesh::index(peer)];
    Buffer& out = *buffers.emplace_back(std::make_unique<Buffer>(*host, to, elements * 4));
    for (size_t i = 0; i < elements; ++i) {
      as_elements(out)[i] = element(rank.rank(), i + Mesh::index(peer) * elements);
    }
    requests.push_back(host->send(to, out.whole()));
  }
  for (void* request : requests) EXPECT_EQ(host->finish(request), static_cast<int>(elements * 4));
  for (const auto& [peer, in] : arriving) {
    size_t wrong = 0;
    for (size_t i = 0; i < elements; ++i) {
      wrong += as_elements(*in)[i] != element(peer, i + Mesh::index(rank.rank()) * elements);
    }
    EXPECT_EQ(wrong, 0U) << "from rank " << peer << " to rank " << rank.rank();
  }
  rank.barrier();
  buffers.clear();
}

TEST(Collective, AllReduceOfTwoProcesses) {
  expect_processes_pass(2, [](Rank& rank) { all_reduce(rank, 1'000'003); });
}

TEST(Collective, AllReduceOfFourProcesses) {
  expect_processes_pass(4, [](Rank& rank) { all_reduce(rank, 300'007); });
}

TEST(Collective, AllReduceOfFewerElementsThanRanks) {
  expect_processes_pass(3, [](Rank& rank) { all_reduce(rank, 2); });
}

TEST(Collective, AllReduceOfThreeThreadsOfOneProcess) {
  expect_threads_pass(3, [](Rank& rank) { all_reduce(rank, 200'003); });
}

TEST(Collective, AllToAllOfFourProcesses) {
  expect_processes_pass(4, [](Rank& rank) { all_to_all(rank, 250'001); });
}

}  // namespace
}  // namespace pacecar::test
