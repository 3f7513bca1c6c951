// Message memory: own pages, registered with one end. Errors, threads: Communicator.
#pragma once

#include <cstdint>
#include <span>

#include "net_plugin/host/host.h"

namespace pacecar::nccl {

// Memory, registered with one end of a connection.
class Registration {
 public:
  Registration(const Host& host, void* comm, std::span<uint8_t> data);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  void* memory() const { return memory_; }
  void deregister();

 private:
  const Host& host_;
  void* comm_;
  void* memory_ = kGarbage;
};

// Memory in pages that nothing else shares.
class Pages {
 public:
  explicit Pages(size_t bytes);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  std::span<uint8_t> bytes() const { return bytes_; }
  void forbid_access() const;  // From here on every access is a fault, as after free().

 private:
  std::span<uint8_t> bytes_;
};

// Pages that are registered with one end of a connection.
class Buffer : public Pages, public Registration {
 public:
  Buffer(const Host& host, void* comm, size_t size)
      : Pages(size), Registration(host, comm, bytes()) {}

  Part part(size_t offset, size_t size, int tag = 0) const {
    return {bytes().subspan(offset, size), tag, memory()};
  }
  Part whole(int tag = 0) const { return {bytes(), tag, memory()}; }
};

}  // namespace pacecar::nccl
