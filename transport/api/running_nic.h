// A NIC of a Context: its description, and the engine that drives it. Thread rule: any.
#pragma once

#include <memory>

#include "transport/api/pacecar.hpp"
#include "transport/engine/engine.h"

namespace pacecar {

struct RunningNic {
  NicInfo info;
  std::shared_ptr<Engine> engine;
};

}  // namespace pacecar
