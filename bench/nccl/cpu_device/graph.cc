#include "bench/nccl/cpu_device/graph.h"

#include <map>
#include <mutex>

namespace pacecar::nccl::cpu {
namespace {

struct Captures {
  std::mutex mutex;
  uint64_t last_id = 0;
  std::map<uint64_t, Graph*> by_id;
};

Captures& captures() {
  static Captures& all = *new Captures;
  return all;
}

}  // namespace

Graph* Graph::begin(Stream& origin) {
  const std::lock_guard lock(captures().mutex);
  auto* const made = new Graph(++captures().last_id);
  captures().by_id[made->id_] = made;
  origin.capture(made->id_);
  return made;
}

Graph* Graph::capturing(uint64_t id) {
  if (id == 0) return nullptr;
  const std::lock_guard lock(captures().mutex);
  const auto found = captures().by_id.find(id);
  return found == captures().by_id.end() ? nullptr : found->second;
}

void Graph::end() const {
  const std::lock_guard lock(captures().mutex);
  captures().by_id.erase(id_);
}

void Graph::launch(Stream& stream) const {
  for (const CommandMaker& make : makers_) stream.gpu().enqueue_made(stream, make);
  stream.gpu().enqueue(stream, [kept = objects_] { return true; });
}

}  // namespace pacecar::nccl::cpu
