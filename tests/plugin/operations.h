// NCCL's operations, built from sends and receives as NCCL builds them: rings, chains, trees,
// meshes.
//
// Every element is a function of operation, rank and place, so that each rank knows what must come
// out, and nothing of an earlier operation passes for it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tests/plugin/mesh.h"

namespace pacecar::test {

// One operation, as all ranks call it.
struct Operation {
  uint32_t number = 0;  // of the job's operations
  size_t count = 0;     // elements; of each block, where there is one per rank
  int root = 0;         // of broadcast and reduce; chooses the peer of send/recv
};

struct OperationKind {
  const char* name;
  // Runs it and returns how many elements are wrong. The mesh has room for a block per rank.
  size_t (*run)(Mesh& mesh, const Operation& operation);
};

extern const std::array<OperationKind, 8> kOperations;

}  // namespace pacecar::test
