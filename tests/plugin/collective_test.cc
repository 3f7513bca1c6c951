// Collectives as NCCL builds them from sends and receives, with every element checked.
#include "tests/plugin/plugin_test.h"
#include "tests/plugin/ring.h"

namespace pacecar::test {
namespace {

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
    for (const int peer : receive_from) host.net().closeListen(listening[index(peer)].comm);
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

void all_reduce(Rank& rank, size_t elements) {
  const auto host = start_host();
  Mesh mesh(*host, rank, {rank.next()}, {rank.previous()});
  const Ring ring{*host, mesh.sends[Mesh::index(rank.next())],
                  mesh.receives[Mesh::index(rank.previous())], rank.rank(), rank.size()};
  const HostBuffer data(*host, ring.send, elements * 4);
  const HostBuffer scratch(*host, ring.receive, elements * 4);
  const std::span<uint32_t> own = as_elements(data);
  for (size_t i = 0; i < elements; ++i) own[i] = element(rank.rank(), i);
  ring_all_reduce(ring, data, scratch);
  size_t wrong = 0;
  for (size_t i = 0; i < elements; ++i) {
    uint32_t expected = 0;
    for (int r = 0; r < rank.size(); ++r) expected += element(r, i);
    wrong += own[i] != expected;
  }
  EXPECT_EQ(wrong, 0U) << "rank " << rank.rank();
  rank.barrier();
}

void all_to_all(Rank& rank, size_t elements) {
  const auto host = start_host();
  std::vector<int> others;
  for (int peer = 0; peer < rank.size(); ++peer) {
    if (peer != rank.rank()) others.push_back(peer);
  }
  Mesh mesh(*host, rank, others, others);
  std::vector<std::unique_ptr<HostBuffer>> buffers;
  std::vector<void*> requests;
  std::vector<std::pair<int, HostBuffer*>> arriving;
  for (const int peer : others) {
    void* const from = mesh.receives[Mesh::index(peer)];
    HostBuffer& in = *buffers.emplace_back(std::make_unique<HostBuffer>(*host, from, elements * 4));
    requests.push_back(receive(*host, from, {in.bytes(), 0, in.memory()}));
    arriving.emplace_back(peer, &in);
  }
  for (const int peer : others) {
    void* const to = mesh.sends[Mesh::index(peer)];
    HostBuffer& out = *buffers.emplace_back(std::make_unique<HostBuffer>(*host, to, elements * 4));
    for (size_t i = 0; i < elements; ++i) {
      as_elements(out)[i] = element(rank.rank(), i + Mesh::index(peer) * elements);
    }
    requests.push_back(send(*host, to, {out.bytes(), 0, out.memory()}));
  }
  for (void* request : requests)
    EXPECT_EQ(complete(*host, request), static_cast<int>(elements * 4));
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
