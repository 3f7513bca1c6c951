// Loads a net plugin and calls it as NCCL does. Thread rule: one thread per process.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "net_plugin/abi/any_net.h"
#include "transport/base/result.h"

namespace pacecar::nccl {

using HandleBytes = std::array<uint8_t, kHandleBytes>;

// Asked between two polls; an error ends the waiting and becomes the answer.
using Patience = std::function<Result<void>()>;

class Plugin {
 public:
  // Loads the library at `path` and initialises its table of `version`, 0 for the newest. Its
  // warnings go to stderr; its information too if `verbose`. Errors: kNotFound, kSystem.
  static Result<std::unique_ptr<Plugin>> load(const std::string& path, bool verbose,
                                              int version = 0, int device = 0);
  ~Plugin();  // closes nothing but the plugin itself
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  // The functions below answer kPeer when the plugin reports an error.
  int version() const { return net_->version(); }
  Result<std::string> device_name() const;
  Result<void*> listen(HandleBytes* handle) const;
  // One poll each; nullptr means "not yet". `handle` is the same object for one attempt's polls.
  Result<void*> try_connect(HandleBytes& handle) const;
  Result<void*> try_accept(void* listening) const;
  // Poll until the connection is there, which takes the other end's polls too.
  Result<void*> connect(HandleBytes handle, const Patience& patience) const;
  Result<void*> accept(void* listening, const Patience& patience) const;

  Result<void*> register_memory(void* comm, std::span<std::byte> memory) const;
  Result<void> deregister_memory(void* comm, void* registration) const;
  // nullptr means "full, again later".
  Result<void*> send(void* comm, std::span<std::byte> data, void* registration) const;
  Result<void*> receive(void* comm, std::span<std::byte> data, void* registration) const;
  // True once, when the request is done; `bytes` then tells how many were moved.
  Result<bool> test(void* request, size_t* bytes) const;

  Result<void> close_send(void* comm) const;
  Result<void> close_receive(void* comm) const;
  Result<void> close_listen(void* comm) const;

 private:
  Plugin(void* library, std::unique_ptr<AnyNet> net) : library_(library), net_(std::move(net)) {}

  void* library_;
  std::unique_ptr<AnyNet> net_;
  void* context_ = nullptr;
  int device_ = 0;
};

}  // namespace pacecar::nccl
