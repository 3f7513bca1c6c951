// `window`: keeps a fixed number of chunks in flight per flow, at line rate, and ignores signs of
// congestion; only a grant slows it down. Software transports for collectives do this by default,
// so it is the baseline for what pacing changes.
#pragma once

#include <array>

#include "cc/constants.h"
#include "cc/controller.h"
#include "cc/grant_limit.h"

namespace pacecar {

struct WindowConstants {
  int chunks = 2;
  int chunk_bytes = 64 * 1024;

  static constexpr auto table() {
    using C = WindowConstants;
    return std::to_array<Constant<C>>({
        {"chunks", "chunks", 1, 1024, &C::chunks, "in flight per flow; ours"},
        {"chunk_bytes", "bytes", 64, 1 << 24, &C::chunk_bytes, "payload of a chunk; ours"},
    });
  }
};

class WindowController final : public GrantedController {
 public:
  using Constants = WindowConstants;

  explicit WindowController(const FlowEnvironment& environment, const Constants& constants = {});

  std::string_view name() const override { return "window"; }
  void on_ack(Instant, const FlowSignal&) override {}
};

}  // namespace pacecar
