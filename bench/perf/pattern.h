// The bytes of a validated message. Every byte depends on the number of the message and on its
// offset, so that lost, repeated, swapped and shifted data are all detected. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace pacecar::perf {

void fill_pattern(std::span<uint8_t> message, uint64_t number);
// The offset of the first byte that differs from the pattern.
std::optional<size_t> find_mismatch(std::span<const uint8_t> message, uint64_t number);

}  // namespace pacecar::perf
