#include "cc/window.h"

#include <algorithm>

#include "transport/base/check.h"

namespace pacecar {

WindowController::WindowController(const FlowEnvironment& environment, const Constants& constants)
    : GrantedController(environment.line_rate) {
  PACECAR_CHECK(environment.line_rate > Rate() && environment.mtu > 0);
  const auto chunks = static_cast<Bytes>(constants.chunks);
  own_.rate = environment.line_rate;
  own_.limited_by = limit_at_line(environment);
  own_.window = std::max(chunks * static_cast<Bytes>(constants.chunk_bytes), environment.mtu);
}

}  // namespace pacecar
