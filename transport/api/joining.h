// Making connections: the bootstrap carries what the two messengers tell each other.
#pragma once

#include <memory>

#include "transport/api/pacecar.hpp"
#include "transport/base/params.h"
#include "transport/engine/engine.h"

namespace pacecar {

Result<std::unique_ptr<Listener>> make_listener(std::shared_ptr<Engine> engine,
                                                const Params& params);
Result<std::unique_ptr<Connecting>> make_connecting(std::shared_ptr<Engine> engine,
                                                    const Params& params, const Handle& handle,
                                                    uint32_t weight);

}  // namespace pacecar
