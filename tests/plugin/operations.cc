#include "tests/plugin/operations.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace pacecar::test {
namespace {

constexpr size_t kChunks = 4;  // of a chain, in flight at once

uint32_t element(const Operation& operation, int rank, size_t place) {
  return (static_cast<uint32_t>(place) + operation.number * 7'919U) * 2'654'435'761U +
         static_cast<uint32_t>(rank) * 97U;
}

uint32_t sum_of_all(const Mesh& mesh, const Operation& operation, size_t place) {
  uint32_t sum = 0;
  for (int rank = 0; rank < mesh.ranks(); ++rank) sum += element(operation, rank, place);
  return sum;
}

// Writes this rank's contribution, whose elements begin at index `place`.
void fill(const Mesh& mesh, const Operation& operation, Elements elements, size_t place = 0) {
  for (uint32_t& one : elements) one = element(operation, mesh.rank(), place++);
}

template <typename Expected>
size_t count_wrong(Elements elements, const Expected& expected) {
  size_t wrong = 0;
  for (size_t i = 0; i < elements.size(); ++i) wrong += elements[i] != expected(i) ? 1 : 0;
  return wrong;
}

void add(Elements to, Elements from) {
  std::transform(to.begin(), to.end(), from.begin(), to.begin(), std::plus<>());
}

Elements block(Elements all, const Operation& operation, int rank) {
  return all.subspan(static_cast<size_t>(rank) * operation.count, operation.count);
}

// Partial sums travel once around the ring. `part` returns a rank's part of a memory.
template <typename Part>
void ring_of_sums(Mesh& mesh, const Part& part, int begin) {
  for (int step = 0; step < mesh.ranks() - 1; ++step) {
    const Elements in = part(mesh.inbox(), mesh.at(begin - step - 1));
    mesh.send(mesh.at(1), part(mesh.data(), mesh.at(begin - step)));
    mesh.receive(mesh.at(-1), in);
    mesh.run();
    add(part(mesh.data(), mesh.at(begin - step - 1)), in);
  }
}

// Each rank's data travels once around the ring.
template <typename Part>
void ring_of_copies(Mesh& mesh, const Part& part, int begin) {
  for (int step = 0; step < mesh.ranks() - 1; ++step) {
    mesh.send(mesh.at(1), part(mesh.data(), mesh.at(begin - step)));
    mesh.receive(mesh.at(-1), part(mesh.data(), mesh.at(begin - step - 1)));
    mesh.run();
  }
}

size_t all_reduce_ring(Mesh& mesh, const Operation& operation) {
  const Elements own = mesh.data().first(operation.count);
  const auto part = [&](Elements memory, int rank) {
    return part_of(memory.first(operation.count), static_cast<size_t>(rank),
                   static_cast<size_t>(mesh.ranks()));
  };
  fill(mesh, operation, own);
  ring_of_sums(mesh, part, 0);
  ring_of_copies(mesh, part, 1);
  return count_wrong(own, [&](size_t i) { return sum_of_all(mesh, operation, i); });
}

size_t reduce_scatter(Mesh& mesh, const Operation& operation) {
  const auto part = [&](Elements memory, int rank) { return block(memory, operation, rank); };
  const size_t place = static_cast<size_t>(mesh.rank()) * operation.count;
  fill(mesh, operation, mesh.data().first(static_cast<size_t>(mesh.ranks()) * operation.count));
  ring_of_sums(mesh, part, -1);
  return count_wrong(part(mesh.data(), mesh.rank()),
                     [&](size_t i) { return sum_of_all(mesh, operation, place + i); });
}

size_t all_gather(Mesh& mesh, const Operation& operation) {
  const auto part = [&](Elements memory, int rank) { return block(memory, operation, rank); };
  fill(mesh, operation, part(mesh.data(), mesh.rank()));
  ring_of_copies(mesh, part, 0);
  size_t wrong = 0;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    wrong +=
        count_wrong(part(mesh.data(), rank), [&](size_t i) { return element(operation, rank, i); });
  }
  return wrong;
}

// From rank `first` to the rank before it, chunk after chunk. With `adds` each rank adds its own
// data to the chunks that it forwards; otherwise it keeps a copy of each chunk.
void chain(Mesh& mesh, Elements own, int first, bool adds) {
  const int last = mesh.ranks() - 1;
  const int position = mesh.at(-first);
  const auto chunk = [&](Elements elements, int i) {
    return part_of(elements, static_cast<size_t>(i), kChunks);
  };
  const auto exists = [](int i) { return i >= 0 && i < static_cast<int>(kChunks); };
  for (int step = 0; step < last + static_cast<int>(kChunks) - 1; ++step) {
    const int out = step - position;
    const int in = out + 1;
    const bool receives = position > 0 && exists(in);
    const Elements arriving = adds ? mesh.inbox().first(own.size()) : own;
    if (position < last && exists(out)) mesh.send(mesh.at(1), chunk(own, out));
    if (receives) mesh.receive(mesh.at(-1), chunk(arriving, in));
    mesh.run();
    if (receives && adds) add(chunk(own, in), chunk(arriving, in));
  }
}

size_t broadcast(Mesh& mesh, const Operation& operation) {
  const Elements own = mesh.data().first(operation.count);
  fill(mesh, operation, own);
  chain(mesh, own, operation.root, false);
  return count_wrong(own, [&](size_t i) { return element(operation, operation.root, i); });
}

size_t reduce(Mesh& mesh, const Operation& operation) {
  const Elements own = mesh.data().first(operation.count);
  fill(mesh, operation, own);
  chain(mesh, own, (operation.root + 1) % mesh.ranks(), true);
  if (mesh.rank() != operation.root) return 0;
  return count_wrong(own, [&](size_t i) { return sum_of_all(mesh, operation, i); });
}

// A rank's place in the binary tree of a channel. Each channel's tree has another root.
struct Place {
  Place(const Mesh& mesh, size_t channel) {
    const int root = static_cast<int>(channel) % mesh.ranks();
    const auto rank_at = [&](int place) { return (place + root) % mesh.ranks(); };
    const int own = mesh.at(-root);
    if (own > 0) parent = rank_at((own - 1) / 2);
    for (const int child : {2 * own + 1, 2 * own + 2}) {
      if (child < mesh.ranks()) children.push_back(rank_at(child));
    }
    level = level_of(own);
  }
  static int level_of(int place) { return place == 0 ? 0 : 1 + level_of((place - 1) / 2); }

  int level = 0;
  int parent = -1;
  std::vector<int> children;
};

// Level by level, on all channels at once: sums go up, results come down.
size_t all_reduce_tree(Mesh& mesh, const Operation& operation) {
  const Elements own = mesh.data().first(operation.count);
  fill(mesh, operation, own);
  std::vector<Place> places;
  for (size_t c = 0; c < mesh.channels(); ++c) places.emplace_back(mesh, c);
  const auto of_channel = [&](Elements elements, size_t c) {
    return part_of(elements, c, mesh.channels());
  };
  const auto for_each_child = [&](int level, const auto& step) {
    for (size_t c = 0; c < places.size(); ++c) {
      for (size_t i = 0; places[c].level == level && i < places[c].children.size(); ++i) {
        const Elements inbox = mesh.inbox().subspan(i * operation.count, operation.count);
        step(c, places[c].children[i], of_channel(inbox, c));
      }
    }
  };
  const int deepest = Place::level_of(mesh.ranks() - 1);
  for (int level = deepest; level > 0; --level) {
    for (size_t c = 0; c < places.size(); ++c) {
      if (places[c].level == level) mesh.send(places[c].parent, of_channel(own, c), c);
    }
    for_each_child(level - 1,
                   [&](size_t c, int child, Elements in) { mesh.receive(child, in, c); });
    mesh.run();
    for_each_child(level - 1, [&](size_t c, int, Elements in) { add(of_channel(own, c), in); });
  }
  for (int level = 1; level <= deepest; ++level) {
    for_each_child(level - 1,
                   [&](size_t c, int child, Elements) { mesh.send(child, of_channel(own, c), c); });
    for (size_t c = 0; c < places.size(); ++c) {
      if (places[c].level == level) mesh.receive(places[c].parent, of_channel(own, c), c);
    }
    mesh.run();
  }
  return count_wrong(own, [&](size_t i) { return sum_of_all(mesh, operation, i); });
}

size_t send_and_receive(Mesh& mesh, const Operation& operation) {
  const int distance = 1 + operation.root % (mesh.ranks() - 1);
  const Elements arriving = mesh.inbox().first(operation.count);
  fill(mesh, operation, mesh.data().first(operation.count));
  mesh.send(mesh.at(distance), mesh.data().first(operation.count));
  mesh.receive(mesh.at(-distance), arriving);
  mesh.run();
  return count_wrong(arriving, [&](size_t i) { return element(operation, mesh.at(-distance), i); });
}

size_t all_to_all(Mesh& mesh, const Operation& operation) {
  fill(mesh, operation, mesh.data().first(static_cast<size_t>(mesh.ranks()) * operation.count));
  for (int distance = 1; distance < mesh.ranks(); ++distance) {
    const int peer = mesh.at(distance);
    mesh.send(peer, block(mesh.data(), operation, peer));
    mesh.receive(peer, block(mesh.inbox(), operation, peer));
  }
  mesh.run();
  const size_t place = static_cast<size_t>(mesh.rank()) * operation.count;
  size_t wrong = 0;
  for (int distance = 1; distance < mesh.ranks(); ++distance) {
    const int peer = mesh.at(distance);
    wrong += count_wrong(block(mesh.inbox(), operation, peer),
                         [&](size_t i) { return element(operation, peer, place + i); });
  }
  return wrong;
}

}  // namespace

const std::array<OperationKind, 8> kOperations{{{"all-reduce, ring", all_reduce_ring},
                                                {"all-reduce, tree", all_reduce_tree},
                                                {"all-gather", all_gather},
                                                {"reduce-scatter", reduce_scatter},
                                                {"broadcast", broadcast},
                                                {"reduce", reduce},
                                                {"send/recv", send_and_receive},
                                                {"all-to-all", all_to_all}}};

}  // namespace pacecar::test
