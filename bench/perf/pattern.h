// The bytes that a validated message carries: every byte depends on the message's number and on its
// place, so that lost, repeated, swapped and shifted data all show. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace pacecar::perf {

void fill_pattern(std::span<uint8_t> message, uint64_t number);
// The offset of the first byte that is not the pattern's.
std::optional<size_t> find_mismatch(std::span<const uint8_t> message, uint64_t number);

}  // namespace pacecar::perf
