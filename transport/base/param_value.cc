#include "transport/base/param_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <span>
#include <vector>

#include "transport/base/port_range.h"
#include "transport/base/take_until.h"
#include "transport/base/to_number.h"

namespace pacecar {
namespace {

struct Suffix {
  std::string_view text;
  uint64_t factor;
};

// Largest first.
constexpr std::array kByteSuffixes{Suffix{"G", 1U << 30}, Suffix{"M", 1U << 20},
                                   Suffix{"K", 1U << 10}, Suffix{"", 1}};
constexpr std::array kRateSuffixes{Suffix{"T", 1'000'000'000'000}, Suffix{"G", 1'000'000'000},
                                   Suffix{"M", 1'000'000}, Suffix{"K", 1'000}, Suffix{"", 1}};
constexpr std::array kDurationSuffixes{Suffix{"s", 1'000'000'000}, Suffix{"ms", 1'000'000},
                                       Suffix{"us", 1'000}, Suffix{"ns", 1}};
constexpr std::string_view kAuto = "auto";  // instead of 0
constexpr std::array kNoSuffixes{Suffix{"", 1}};

std::span<const Suffix> suffixes_of(ParamType type) {
  switch (type) {
    case ParamType::kBytes: return kByteSuffixes;
    case ParamType::kRate: return kRateSuffixes;
    case ParamType::kDuration: return kDurationSuffixes;
    default: return kNoSuffixes;
  }
}

// "a|b|c" in parts.
std::vector<std::string_view> split_choices(std::string_view choices) {
  std::vector<std::string_view> parts;
  while (!choices.empty()) parts.push_back(take_until(choices, '|'));
  return parts;
}

std::optional<uint64_t> parse_choice(std::string_view choices, std::string_view text) {
  const std::vector<std::string_view> parts = split_choices(choices);
  const auto found = std::ranges::find(parts, text);
  if (found == parts.end()) return std::nullopt;
  return static_cast<uint64_t>(found - parts.begin());
}

std::optional<uint64_t> parse_number(std::span<const Suffix> suffixes, std::string_view text) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return std::nullopt;
  // "1.6T": decimals that make a whole number of the smallest unit.
  uint64_t divisor = 1;
  if (rest != end && *rest == '.' && suffixes.size() > 1) {
    constexpr uint64_t kMostDivisor = 1'000'000'000;
    while (++rest != end && *rest >= '0' && *rest <= '9' && divisor < kMostDivisor) {
      if (number > (UINT64_MAX - 9) / 10) return std::nullopt;
      number = number * 10 + static_cast<uint64_t>(*rest - '0');
      divisor *= 10;
    }
    if (divisor == 1) return std::nullopt;
  }
  for (const Suffix& suffix : suffixes) {
    if (suffix.text != std::string_view(rest, end)) continue;
    uint64_t raw = 0;
    if (__builtin_mul_overflow(number, suffix.factor, &raw) || raw % divisor != 0) {
      return std::nullopt;
    }
    return raw / divisor;
  }
  return std::nullopt;
}

// "40000-40100", or "0".
std::optional<uint64_t> parse_ports(std::string_view text) {
  const auto first = to_number<uint16_t>(take_until(text, '-'));
  if (first == uint16_t{0} && text.empty()) return 0;
  const auto last = to_number<uint16_t>(text);
  if (!first || !last) return std::nullopt;
  return PortRange{*first, *last}.raw();
}

std::string describe_range(const ParamInfo& info) {
  const std::string from_to = fmt::format("from {} to {}", format_param(info, info.range.min),
                                          format_param(info, info.range.max));
  if (info.range.rule == ParamRange::Rule::kAutoToo) return from_to + ", or auto";
  return info.range.rule == ParamRange::Rule::kZeroToo ? "0 or " + from_to : from_to;
}

std::string_view describe_integer(ParamRange::Rule rule) {
  switch (rule) {
    case ParamRange::Rule::kPowerOfTwo: return "a power of two";
    case ParamRange::Rule::kMultipleOf4: return "a multiple of 4";
    default: return "a whole number";
  }
}

}  // namespace

bool ParamRange::contains(uint64_t raw) const {
  if (raw == 0 && (rule == Rule::kZeroToo || rule == Rule::kAutoToo)) return true;
  if (rule == Rule::kPorts) {
    const PortRange ports = PortRange::from_raw(raw);
    return raw == 0 || (ports.first > 0 && ports.first <= ports.last && raw == ports.raw());
  }
  if (raw < min || raw > max) return false;
  if (rule == Rule::kPowerOfTwo) return std::has_single_bit(raw);
  if (rule == Rule::kMultipleOf4) return raw % 4 == 0;
  return true;
}

std::optional<uint64_t> parse_param(const ParamInfo& info, std::string_view text) {
  if (info.type == ParamType::kEnum) return parse_choice(info.choices, text);
  const bool has_auto = info.range.rule == ParamRange::Rule::kAutoToo;
  if (has_auto && text == kAuto) return 0;
  const std::optional<uint64_t> raw = info.type == ParamType::kPorts
                                          ? parse_ports(text)
                                          : parse_number(suffixes_of(info.type), text);
  if (has_auto && raw == uint64_t{0}) return std::nullopt;
  return raw && info.range.contains(*raw) ? raw : std::nullopt;
}

std::string format_param(const ParamInfo& info, uint64_t raw) {
  if (info.type == ParamType::kEnum) return std::string(split_choices(info.choices).at(raw));
  if (raw == 0 && info.range.rule == ParamRange::Rule::kAutoToo) return std::string(kAuto);
  if (raw == 0) return info.type == ParamType::kDuration ? "0s" : "0";
  if (info.type == ParamType::kPorts) {
    const PortRange ports = PortRange::from_raw(raw);
    return fmt::format("{}-{}", ports.first, ports.last);
  }
  const auto suffixes = suffixes_of(info.type);
  const auto suffix = std::ranges::find_if(
      suffixes, [raw](uint64_t factor) { return raw % factor == 0; },  // the last factor is 1
      &Suffix::factor);
  return fmt::format("{}{}", raw / suffix->factor, suffix->text);
}

std::string describe_accepted(const ParamInfo& info) {
  switch (info.type) {
    case ParamType::kText: return "any text";
    case ParamType::kBool: return "0 or 1";
    case ParamType::kInteger:
      return fmt::format("{} {}", describe_integer(info.range.rule), describe_range(info));
    case ParamType::kBytes: return fmt::format("bytes, {}", describe_range(info));
    case ParamType::kRate:
      return fmt::format("bits per second, {}, such as 25G", describe_range(info));
    case ParamType::kDuration:
      return fmt::format("a time {} with its unit (ns, us, ms or s)", describe_range(info));
    case ParamType::kPorts: return "a range of ports such as 40000-40100, or 0";
    case ParamType::kEnum: break;
  }
  return fmt::format("one of {}", fmt::join(split_choices(info.choices), ", "));
}

}  // namespace pacecar
