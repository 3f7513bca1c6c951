// NCCL's operations, built from sends and receives as NCCL builds them: rings, chains, trees,
// meshes.
//
// Every element is a function of operation, rank and index. So each rank can compute the expected
// result, and stale data of an earlier operation is found.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tests/plugin/mesh.h"

namespace pacecar::test {

// One operation, as all ranks call it.
struct Operation {
  uint32_t number = 0;  // counts the job's operations
  size_t count = 0;     // elements; per block where each rank has a block
  int root = 0;         // root of broadcast and reduce; in send/recv it chooses the peer
};

struct OperationKind {
  const char* name;
  // Runs it and returns how many elements are wrong. The mesh has room for a block per rank.
  size_t (*run)(Mesh& mesh, const Operation& operation);
};

extern const std::array<OperationKind, 8> kOperations;

}  // namespace pacecar::test
