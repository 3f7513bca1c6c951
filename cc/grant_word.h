// The 8-byte control words of grants and demands.
//   grant word   rate 23 | guessed 1 | phase 16 | validity 8 | epoch 16   (upper bits first)
//   demand word  usable 16 | unused 8 | wanted 24 | epoch 16
//   either       0xFFFFFF 24 | credit 24 | epoch 16      in place of a rate
// Credit is in units of credit.h, modulo 2^24; grants round down, wishes round up. Rates (bit/s)
// are 23-bit floats: 18 bits of mantissa, 5 of exponent, exact below 2^19, relative error below
// 2^-18 up to 2^49, and saturated one code earlier. Usable rates are 16-bit floats (11 + 5 bits)
// with an error below 2^-11 up to 2^42. `wanted` is in units of 256 bytes, rounded up, modulo 2^24.
// The phase is in units of 64 ns, saturated; its two largest codes mean that the grant is not
// aligned, and that the link is busy. The validity is an 8-bit float (3 + 5 bits) in microseconds,
// exact below 16, and at most 1/9 short above. Rates, phases and validities round down, so that
// encoded grants never add up to more than the originals. Every 64-bit value decodes to valid,
// bounded fields. Pure; any thread.
#pragma once

#include <cstdint>

#include "cc/allocator.h"
#include "cc/controller.h"

namespace pacecar {

inline constexpr Bytes kWantedUnit = 256;  // The unit of Demand::wanted in a word; rounded up.

}  // namespace pacecar

namespace pacecar::wire {

uint64_t encode_grant(const Grant& grant);
Grant decode_grant(uint64_t word);

uint64_t encode_demand(const Demand& demand);
Demand decode_demand(uint64_t word);

}  // namespace pacecar::wire
