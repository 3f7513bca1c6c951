// The text form of one parameter: how it is parsed, checked, printed and explained. Every type but
// text has a raw value, a uint64_t: a bool's 0 or 1, bytes, bits per second, nanoseconds,
// PortRange::raw(), or an enum's index. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace pacecar {

enum class ParamType { kText, kBool, kInteger, kBytes, kRate, kDuration, kPorts, kEnum };

// The raw values that a parameter accepts. kAutoToo: 0 as well, which is written "auto".
struct ParamRange {
  enum class Rule { kBetween, kZeroToo, kAutoToo, kPowerOfTwo, kMultipleOf4, kPorts };

  uint64_t min = 0;
  uint64_t max = std::numeric_limits<uint64_t>::max();
  Rule rule = Rule::kBetween;

  bool contains(uint64_t raw) const;
};

struct ParamInfo {
  std::string_view name;  // "PACECAR_PATHS"
  ParamType type;
  std::string_view doc;      // a phrase without a full stop
  ParamRange range;          // of numbers
  std::string_view choices;  // of an enum, in the order of its values: "auto|full|header"
};

// nullopt: the parameter does not accept `text`. Not for text parameters.
std::optional<uint64_t> parse_param(const ParamInfo& info, std::string_view text);

// The shortest text that parses to `raw`. Not for text parameters.
std::string format_param(const ParamInfo& info, uint64_t raw);

// What the parameter accepts, for people: "a whole number from 1 to 64".
std::string describe_accepted(const ParamInfo& info);

}  // namespace pacecar
