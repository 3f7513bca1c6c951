// The times at which a flow's packets should leave, so that flows of equal rate do not meet.
#pragma once

#include "transport/base/units.h"

namespace pacecar {

// The instants at which packets leave: `point`, and one every `period` before and after it. Without
// a period: none.
struct SendGrid {
  Instant point;
  Duration period;
  Duration late;  // an instant still counts if it passed at most this long ago

  friend bool operator==(const SendGrid&, const SendGrid&) = default;
};

}  // namespace pacecar
