// A CUDA graph: commands that were captured instead of being done, and that every launch puts into
// a stream. They run in the order in which they were captured, one that a GPU may choose.
//
//   begin() -> capturing: Gpu::enqueue() of a captured stream adds -> end() -> launched, any number
//   of times
//
// Thread rule: one thread at a time captures into a graph; any thread may launch it afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bench/nccl/cpu_device/gpu.h"

namespace pacecar::nccl::cpu {

class Graph {
 public:
  // From now on captures the commands that `origin` gets.
  static Graph* begin(Stream& origin);
  // The graph of this id while it captures; nullptr before and after, and of the id 0.
  static Graph* capturing(uint64_t id);
  void end() const;

  uint64_t id() const { return id_; }
  void add(CommandMaker make) { makers_.push_back(std::move(make)); }
  // Keeps the object for as long as the graph, its copies and their launches need it.
  void retain(std::shared_ptr<void> object) { objects_.push_back(std::move(object)); }
  void launch(Stream& stream) const;

 private:
  explicit Graph(uint64_t id) : id_(id) {}

  uint64_t id_;  // never given twice
  std::vector<CommandMaker> makers_;
  std::vector<std::shared_ptr<void>> objects_;
};

}  // namespace pacecar::nccl::cpu
