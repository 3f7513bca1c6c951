// The parameters of Pacecar as a typed struct, and their table. Both are generated from params.def.
// Pure: the caller supplies the settings; params_environment.h reads them from the usual places.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/packet_modes.h"
#include "transport/base/param_value.h"
#include "transport/base/port_range.h"
#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar {

enum class Progress : uint8_t { kInline, kThread };
enum class AutoOrOff : uint8_t { kAuto, kOff };
enum class Integrity : uint8_t { kAuto, kFull, kHeader };
enum class GpuSetting : uint8_t { kAuto, kDirect, kStaged, kHost };
enum class ProfilerSetting : uint8_t { kOff, kOn };
enum class TunerSetting : uint8_t { kOff, kOn, kObserve };

struct Params {
#define PACECAR_PARAM(type, field, name, default_value, ...) type field = default_value;
#include "transport/base/params.def"
#undef PACECAR_PARAM

  // One per row of param_table(), in its order; empty when every value is the default.
  std::vector<std::string> origins;

  // The value of a row of param_table() as a setting would write it: "25G".
  std::string text(size_t row) const;
  // Where it came from: "default", "environment", "command line" or the name of a file.
  std::string_view origin(size_t row) const;
};

std::span<const ParamInfo> param_table();

// One setting, not yet checked. `origin` is used in messages and kept for Params::origin().
struct ParamSetting {
  std::string name;
  std::string value;
  std::string origin;
};

// Applies `settings`, given in increasing priority: the last one of each name counts, and only that
// one is checked, so that a bad line of a system's file can be overridden. An unknown name adds one
// sentence to `warnings` (may be null).
// Error: kInvalidArgument, naming the variable, its origin, its value and the accepted values.
Result<Params> load_params(std::span<const ParamSetting> settings,
                           std::vector<std::string>* warnings);

// Splits the text of a parameter file into settings with `file` as their origin. Lines are
// NAME=VALUE, blank, or comments that begin with #; blanks around names and values are dropped.
// Error: kInvalidArgument, naming file and line.
Result<std::vector<ParamSetting>> parse_param_file(std::string_view text, std::string_view file);

}  // namespace pacecar
