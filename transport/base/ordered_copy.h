// Copies a payload into place in ascending order, in stores of at least 8 aligned bytes.
//
// Why not memcpy: a reader may poll the destination while it is written (NCCL's LL and LL128
// protocols do, from a GPU). It needs 8-byte stores that are never torn, and flags that never
// become visible before the data before them; memcpy may write a block's end first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pacecar {

void ordered_copy(uint8_t* destination, const uint8_t* source, size_t length);

}  // namespace pacecar
