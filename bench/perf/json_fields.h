// Reads members of a JSON object that came from a peer: present, of the right type and in range, or
// an error of code kPeer.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "transport/base/result.h"

namespace pacecar::perf {

Result<uint64_t> unsigned_field(const nlohmann::json& object, std::string_view key, uint64_t min,
                                uint64_t max);
// Finite and in [min, max].
Result<double> number_field(const nlohmann::json& object, std::string_view key, double min,
                            double max);
Result<bool> bool_field(const nlohmann::json& object, std::string_view key);
// Printable ASCII of at most max_size characters: a peer's text ends up on our terminal.
Result<std::string> text_field(const nlohmann::json& object, std::string_view key, size_t max_size);

}  // namespace pacecar::perf
