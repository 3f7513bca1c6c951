// A rank's connections to the one so far further around the ring of ranks, and from the one as far
// before it, with the memory that is sent from and received into. Errors are thrown.
#pragma once

#include <cstddef>
#include <span>

#include "bench/nccl/board.h"
#include "bench/nccl/request_stream.h"
#include "net_plugin/host/host.h"

namespace pacecar::nccl {

inline std::span<uint8_t> bytes_of(std::span<float> elements) {
  return {reinterpret_cast<uint8_t*>(elements.data()), elements.size_bytes()};
}

struct Link {
  // Connects; every rank does.
  Link(const Host& host, Board& board, size_t rank, size_t distance, std::span<float> sent,
       std::span<float> received);
  void begin() { sends = receives = {}; }  // an operation
  void close(const Host& host);

  const size_t to;
  const size_t from;
  const Ends ends;
  Registration send_memory;
  Registration receive_memory;
  RequestStream sends;
  RequestStream receives;
};

}  // namespace pacecar::nccl
