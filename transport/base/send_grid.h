// The times at which a flow's packets should leave, so that flows of equal rate do not meet.
#pragma once

#include "transport/base/units.h"

namespace pacecar {

// The instants at which packets leave: `point`, and one every `period` before and after it. Without
// a period: none.
struct SendGrid {
  Instant point;
  Duration period;
  Duration late;  // by which an instant may have passed, and still count

  friend bool operator==(const SendGrid&, const SendGrid&) = default;
};

}  // namespace pacecar
