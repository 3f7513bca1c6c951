#include "tests/plugin/mesh.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

namespace pacecar::test {
namespace {

constexpr size_t kSliceElements = 16'384;
constexpr size_t kSlicesInFlight = 4;

}  // namespace

Elements part_of(Elements all, size_t index, size_t of) {
  const size_t begin = all.size() * index / of;
  return all.subspan(begin, all.size() * (index + 1) / of - begin);
}

// One end of a connection, with the memory that is registered for it.
struct Mesh::Link {
  Link(const FakeNcclHost& on, bool is_sender) : host(on), sends(is_sender) {}
  ~Link() {
    data.reset();
    inbox.reset();
    if (comm != nullptr) sends ? host.net().closeSend(comm) : host.net().closeRecv(comm);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const FakeNcclHost& host;
  const bool sends;
  void* comm = nullptr;
  std::optional<nccl::Registration> data;
  std::optional<nccl::Registration> inbox;
};

struct Mesh::Move {
  Link* link;
  Elements elements;
  size_t posted = 0;  // slices
  size_t done = 0;
  std::array<void*, kSlicesInFlight> requests{};

  // An empty message has one slice.
  size_t slices() const {
    return std::max<size_t>(1, (elements.size() + kSliceElements - 1) / kSliceElements);
  }
};

Mesh::Mesh(const FakeNcclHost& host, Rank& rank, size_t capacity)
    : host_(host),
      rank_(rank.rank()),
      ranks_(rank.size()),
      channels_(static_cast<size_t>(host.device_count())),
      data_(capacity * sizeof(uint32_t)),
      inbox_(capacity * sizeof(uint32_t)),
      sending_(static_cast<size_t>(ranks_) * channels_),
      receiving_(sending_.size()) {
  connect(rank);
  for (auto* const links : {&sending_, &receiving_}) {
    for (const auto& link : *links) {
      if (link == nullptr) continue;
      link->data.emplace(host_, link->comm, data_.bytes());
      link->inbox.emplace(host_, link->comm, inbox_.bytes());
    }
  }
}

Mesh::~Mesh() = default;

void Mesh::connect(Rank& rank) {
  std::vector<Listening> listening(sending_.size());
  std::vector<HandleBytes> handles(sending_.size());
  for (size_t channel = 0; channel < channels_; ++channel) {
    for (int distance = 1; distance < ranks_; ++distance) {
      const size_t i = index(at(distance), channel);
      listening[i] = host_.listen(static_cast<int>(channel));
      rank.give(at(distance), listening[i].handle);
      sending_[i] = std::make_unique<Link>(host_, true);
      receiving_[i] = std::make_unique<Link>(host_, false);
    }
    for (int distance = 1; distance < ranks_; ++distance) {
      handles[index(at(distance), channel)] = rank.take(at(distance));
    }
  }
  poll_until("the mesh", [&] {
    bool ready = true;
    for (size_t i = 0; i < sending_.size(); ++i) {
      if (sending_[i] == nullptr) continue;
      Ends ends{sending_[i]->comm, receiving_[i]->comm};
      const int device = static_cast<int>(i % channels_);
      ready &= host_.try_both(handles[i], listening[i].comm, &ends, device);
      sending_[i]->comm = ends.send;
      receiving_[i]->comm = ends.receive;
    }
    return ready;
  });
  for (const Listening& one : listening) {
    if (one.comm != nullptr) host_.close_listen(one.comm);
  }
}

void Mesh::send(int peer, Elements elements, size_t channel) {
  moves_.push_back({sending_[index(peer, channel)].get(), elements});
}

void Mesh::receive(int peer, Elements elements, size_t channel) {
  moves_.push_back({receiving_[index(peer, channel)].get(), elements});
}

void Mesh::send(int peer, Elements elements) {
  for (size_t c = 0; c < channels_; ++c) send(peer, part_of(elements, c, channels_), c);
}

void Mesh::receive(int peer, Elements elements) {
  for (size_t c = 0; c < channels_; ++c) receive(peer, part_of(elements, c, channels_), c);
}

void Mesh::run() {
  poll_until("the messages of an operation", [&] {
    bool all = true;
    for (Move& move : moves_) all &= advance(move);
    return all;
  });
  moves_.clear();
}

// Posts slices up to kSlicesInFlight and tests the oldest request; true when all slices are done.
bool Mesh::advance(Move& move) const {
  void* const comm = move.link->comm;
  while (move.posted < move.slices() && move.posted - move.done < kSlicesInFlight) {
    const Part part = slice_of(move, move.posted);
    void* const request =
        move.link->sends ? host_.try_send(comm, part) : host_.try_receive(comm, part);
    if (request == nullptr) break;
    move.requests[move.posted++ % kSlicesInFlight] = request;
  }
  std::array<int, 1> size{};
  if (move.done < move.posted && host_.test(move.requests[move.done % kSlicesInFlight], size)) {
    const size_t due = slice_of(move, move.done++).data.size();
    nccl::expect(static_cast<size_t>(size.front()) == due,
                 std::to_string(size.front()) + " bytes instead of " + std::to_string(due));
  }
  return move.done == move.slices();
}

Part Mesh::slice_of(const Move& move, size_t slice) const {
  const size_t begin = std::min(slice * kSliceElements, move.elements.size());
  const Elements elements =
      move.elements.subspan(begin, std::min(kSliceElements, move.elements.size() - begin));
  const Elements inbox = elements_of(inbox_);
  const bool inboxed =
      elements.data() >= inbox.data() && elements.data() < inbox.data() + inbox.size();
  return {{reinterpret_cast<uint8_t*>(elements.data()), elements.size_bytes()},
          0,
          (inboxed ? move.link->inbox : move.link->data)->memory()};
}

Elements Mesh::elements_of(const nccl::Pages& pages) {
  return {reinterpret_cast<uint32_t*>(pages.bytes().data()),
          pages.bytes().size() / sizeof(uint32_t)};
}

}  // namespace pacecar::test
