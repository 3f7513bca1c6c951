#include "transport/base/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>

#include "transport/base/check.h"
#include "transport/base/edit_distance.h"
#include "transport/base/printable.h"
#include "transport/base/take_until.h"

namespace pacecar {
namespace {

template <typename T>
constexpr ParamType type_of() {
  if constexpr (std::is_same_v<T, std::string>) return ParamType::kText;
  if constexpr (std::is_same_v<T, bool>) return ParamType::kBool;
  if constexpr (std::is_same_v<T, uint32_t>) return ParamType::kInteger;
  if constexpr (std::is_same_v<T, Bytes>) return ParamType::kBytes;
  if constexpr (std::is_same_v<T, Rate>) return ParamType::kRate;
  if constexpr (std::is_same_v<T, Duration>) return ParamType::kDuration;
  if constexpr (std::is_same_v<T, PortRange>) return ParamType::kPorts;
  if constexpr (std::is_enum_v<T>) return ParamType::kEnum;
}

template <typename T>
constexpr std::string_view choices_of() {
  if constexpr (std::is_same_v<T, Progress>) return "inline|thread";
  if constexpr (std::is_same_v<T, AutoOrOff>) return "auto|off";
  if constexpr (std::is_same_v<T, Integrity>) return "auto|full|header";
  if constexpr (std::is_same_v<T, Security>) return "off|auth|encrypt";
  if constexpr (std::is_same_v<T, GpuSetting>) return "auto|direct|staged|host";
  if constexpr (std::is_same_v<T, ProfilerSetting>) return "off|on";
  if constexpr (std::is_same_v<T, TunerSetting>) return "off|on|observe";
  if constexpr (std::is_same_v<T, WireMode>) return "extended|auto|roce";
  if constexpr (std::is_same_v<T, LogLevel>) return "error|warn|info|trace";
  return {};
}

template <typename T>
constexpr uint64_t to_raw(T value) {
  if constexpr (std::is_same_v<T, Rate>)
    return value.bps();
  else if constexpr (std::is_same_v<T, Duration>)
    return static_cast<uint64_t>(value.ns());
  else if constexpr (std::is_same_v<T, PortRange>)
    return value.raw();
  else
    return static_cast<uint64_t>(value);
}

template <typename T>
constexpr T from_raw(uint64_t raw) {
  if constexpr (std::is_same_v<T, Rate>)
    return Rate::from_bps(raw);
  else if constexpr (std::is_same_v<T, Duration>)
    return Duration::from_ns(static_cast<int64_t>(raw));
  else if constexpr (std::is_same_v<T, PortRange>)
    return PortRange::from_raw(raw);
  else
    return static_cast<T>(raw);
}

template <typename T>
constexpr ParamRange between(T min, T max) {
  return {to_raw(min), to_raw(max), ParamRange::Rule::kBetween};
}
constexpr ParamRange zero_or(uint64_t min, uint64_t max) {
  return {min, max, ParamRange::Rule::kZeroToo};
}
constexpr ParamRange auto_or(uint64_t min, uint64_t max) {
  return {min, max, ParamRange::Rule::kAutoToo};
}
constexpr ParamRange power_of_two(uint64_t min, uint64_t max) {
  return {min, max, ParamRange::Rule::kPowerOfTwo};
}
constexpr ParamRange multiple_of_4(uint64_t min, uint64_t max) {
  return {min, max, ParamRange::Rule::kMultipleOf4};
}

// Bools and ports need no range of their own.
template <typename T>
constexpr ParamRange range_of() {
  if (std::is_same_v<T, PortRange>) return {0, UINT32_MAX, ParamRange::Rule::kPorts};
  return std::is_same_v<T, bool> ? between(0, 1) : ParamRange();
}
template <typename T>
constexpr ParamRange range_of(ParamRange range) {
  return range;
}

constexpr auto kTable = std::to_array<ParamInfo>({
#define PACECAR_PARAM(type, field, name, default_value, doc, ...) \
  {name, type_of<type>(), doc, range_of<type>(__VA_ARGS__), choices_of<type>()},
#include "transport/base/params.def"
#undef PACECAR_PARAM
});

// False: `info` does not accept `text`.
template <auto kField>
bool assign(Params& params, const ParamInfo& info, const std::string& text) {
  auto& value = params.*kField;
  using T = std::remove_reference_t<decltype(value)>;
  if constexpr (std::is_same_v<T, std::string>) {
    value = text;
    return true;
  } else {
    const std::optional<uint64_t> raw = parse_param(info, text);
    if (raw) value = from_raw<T>(*raw);
    return raw.has_value();
  }
}

template <auto kField>
std::string text_of(const Params& params, const ParamInfo& info) {
  const auto& value = params.*kField;
  if constexpr (std::is_same_v<decltype(value), const std::string&>) {
    return value;
  } else {
    return format_param(info, to_raw(value));
  }
}

struct Field {
  bool (*assign)(Params& params, const ParamInfo& info, const std::string& text);
  std::string (*text)(const Params& params, const ParamInfo& info);
};
constexpr std::array<Field, kTable.size()> kFields{{
#define PACECAR_PARAM(type, field, ...) {assign<&Params::field>, text_of<&Params::field>},
#include "transport/base/params.def"
#undef PACECAR_PARAM
}};

constexpr std::string_view kPrefix = "PACECAR_";
constexpr std::string_view kExpert = "PACECAR_EXPERT_";

bool names(std::string_view name, const ParamInfo& info) {
  if (name == info.name) return true;
  return info.name.starts_with(kExpert) && name.starts_with(kPrefix) &&
         name.substr(kPrefix.size()) == info.name.substr(kExpert.size());
}

std::optional<size_t> row_of(std::string_view name) {
  const auto found =
      std::ranges::find_if(kTable, [&](const ParamInfo& info) { return names(name, info); });
  if (found == kTable.end()) return std::nullopt;
  return static_cast<size_t>(found - kTable.begin());
}

constexpr size_t kLongestShown = 80;  // of the environment's bytes, on a terminal

std::string describe_unknown(const ParamSetting& setting) {
  constexpr size_t kLongestName = 64;
  std::string sentence = fmt::format("{} ({}) is not a parameter of Pacecar",
                                     printable(setting.name, kLongestShown), setting.origin);
  if (setting.name.size() <= kLongestName) {
    const auto distance = [&](const ParamInfo& info) {
      return edit_distance(setting.name, info.name);
    };
    const auto nearest = std::ranges::min_element(kTable, {}, distance);
    // Short names are near to everything: one letter in four may differ, and one more.
    const size_t tolerance = 1 + (nearest->name.size() - kPrefix.size()) / 4;
    if (distance(*nearest) <= tolerance) {
      return sentence + fmt::format(": did you mean {}?", nearest->name);
    }
  }
  return sentence + ": `pacecar info -c` lists them all";
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

}  // namespace

std::span<const ParamInfo> param_table() { return kTable; }

std::string Params::text(size_t row) const {
  PACECAR_CHECK(row < kTable.size());
  return kFields[row].text(*this, kTable[row]);
}

std::string_view Params::origin(size_t row) const {
  PACECAR_CHECK(row < kTable.size());
  return origins.empty() ? std::string_view("default") : origins[row];
}

Result<Params> load_params(std::span<const ParamSetting> settings,
                           std::vector<std::string>* warnings) {
  std::array<const ParamSetting*, kTable.size()> chosen{};
  for (const ParamSetting& setting : settings) {
    if (const auto row = row_of(setting.name)) {
      chosen[*row] = &setting;
    } else if (warnings != nullptr) {
      warnings->push_back(describe_unknown(setting));
    }
  }
  Params params;
  params.origins.assign(kTable.size(), "default");
  for (size_t row = 0; row < kTable.size(); ++row) {
    if (chosen[row] == nullptr) continue;
    const auto& [name, value, origin] = *chosen[row];
    if (!kFields[row].assign(params, kTable[row], value)) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("{}='{}' ({}) is not valid: give {}",
                                                           name, printable(value, kLongestShown),
                                                           origin, describe_accepted(kTable[row])));
    }
    params.origins[row] = origin;
  }
  return params;
}

Result<std::vector<ParamSetting>> parse_param_file(std::string_view text, std::string_view file) {
  std::vector<ParamSetting> settings;
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = trim(take_until(text, '\n'));
    if (line.empty() || line.front() == '#') continue;
    const size_t equals = line.find('=');
    const std::string_view name = trim(line.substr(0, equals));
    if (equals == std::string_view::npos || name.empty()) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("line {} of {} is '{}': write NAME=VALUE, such as PACECAR_CC=swift, or "
                      "begin a comment with #",
                      number, file, printable(line, kLongestShown)));
    }
    settings.push_back(
        {std::string(name), std::string(trim(line.substr(equals + 1))), std::string(file)});
  }
  return settings;
}

}  // namespace pacecar
