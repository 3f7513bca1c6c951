#include "cc/window.h"

#include <algorithm>

namespace pacecar {

WindowController::WindowController(const FlowEnvironment& environment, const Constants& constants)
    : GrantedController(environment) {
  const auto chunks = static_cast<Bytes>(constants.chunks);
  own_.window = std::max(chunks * static_cast<Bytes>(constants.chunk_bytes), environment.mtu);
}

}  // namespace pacecar
