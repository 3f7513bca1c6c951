// The times at which a flow's packets should leave, so that flows of equal rate do not meet.
#pragma once

#include "transport/base/units.h"

namespace pacecar {

// When packets leave: at `point`, and every `period` before and after it. No period: no grid.
struct SendGrid {
  Instant point;
  Duration period;
  Duration late;  // an instant still counts if it passed at most this long ago

  friend bool operator==(const SendGrid&, const SendGrid&) = default;
};

}  // namespace pacecar
