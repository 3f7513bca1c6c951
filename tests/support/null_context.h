// A Context without NICs, for tests that implement connections: its memory needs no registration.
#pragma once

#include "transport/api/pacecar.hpp"

namespace pacecar::test {

class NullContext : public Context {
 public:
  std::span<const NicInfo> nics() const override { return {}; }
  Result<size_t> bond(std::span<const size_t>) override { return 0; }
  std::string banner() const override { return ""; }
  Result<std::unique_ptr<Listener>> listen(size_t) override {
    return fail(ErrorCode::kInternal, "no listener");
  }
  Result<std::unique_ptr<Connecting>> connect(size_t, const Handle&,
                                              const ConnectOptions&) override {
    return fail(ErrorCode::kInternal, "no connection");
  }
  void expect(uint32_t) override {}
  Result<const Memory*> register_memory(size_t, const MemoryRange&) override { return nullptr; }
  Result<std::optional<FlushId>> start_flush(size_t, const Memory*, const void*) override {
    return std::nullopt;
  }
  Result<bool> flushed(size_t, FlushId) override { return true; }
  Result<void> deregister_memory(size_t, const Memory*) override { return {}; }
  void rest(size_t) override {}
  Statistics statistics(size_t) const override { return {}; }
};

}  // namespace pacecar::test
