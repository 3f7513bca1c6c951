// The constants of a congestion control as a table of names, so that an experiment can set them and
// a program can list them.
// A struct of constants C holds the defaults in its member initialisers and publishes
//   static constexpr auto table() { return std::to_array<Constant<C>>({...}); }
// Values travel as plain numbers in the unit that the table names: rates in Mb/s, times in
// microseconds. Pure; any thread; for the control path.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/return_if_error.h"
#include "transport/base/units.h"

namespace pacecar {

// One setting of an experiment.
struct NamedValue {
  std::string name;
  double value = 0;

  bool operator==(const NamedValue&) const = default;
};

// One constant, as a program lists it.
struct ConstantInfo {
  std::string_view name;
  std::string_view unit;  // "1" for shares and plain numbers
  double least = 0;       // of the values accepted
  double most = 0;
  double value = 0;          // the default
  std::string_view meaning;  // one line, with the source
};

template <typename C>
struct Constant {
  std::string_view name;
  std::string_view unit;
  double least;
  double most;
  std::variant<double C::*, int C::*, Rate C::*, Duration C::*> member;
  std::string_view meaning;
};

// The constants of a controller that has none to set.
struct NoConstants {
  static constexpr std::array<Constant<NoConstants>, 0> table() { return {}; }
};

namespace constants_internal {

inline double number(double value) { return value; }
inline double number(int value) { return value; }
inline double number(Rate value) { return value.real_bps() / 1e6; }
inline double number(Duration value) { return value.us(); }

inline void assign(double& member, double value) { member = value; }
inline void assign(int& member, double value) { member = static_cast<int>(std::lround(value)); }
inline void assign(Rate& member, double value) {
  member = Rate::from_bps(static_cast<uint64_t>(std::llround(value * 1e6)));
}
inline void assign(Duration& member, double value) {
  member = Duration::from_ns(std::llround(value * 1e3));
}

// The row that `setting` names; checks the value against its range.
Result<size_t> find_row(std::string_view algorithm, std::span<const ConstantInfo> rows,
                        const NamedValue& setting);

}  // namespace constants_internal

// `if constexpr` below: some compilers warn of the elements of an empty table.
template <typename C>
std::vector<ConstantInfo> list_constants() {
  std::vector<ConstantInfo> rows;
  if constexpr (!C::table().empty()) {
    static constexpr C defaults{};
    for (const Constant<C>& c : C::table()) {
      const double value = std::visit(
          [&](auto member) { return constants_internal::number(defaults.*member); }, c.member);
      rows.push_back({c.name, c.unit, c.least, c.most, value, c.meaning});
    }
  }
  return rows;
}

// The defaults with `settings` applied in their order.
// Error: kInvalidArgument, naming the algorithm, the constant and the accepted names or values.
template <typename C>
Result<C> make_constants(std::string_view algorithm, std::span<const NamedValue> settings) {
  C constants;
  const std::vector<ConstantInfo> rows = list_constants<C>();
  for (const NamedValue& setting : settings) {
    ASSIGN_OR_RETURN(const auto row, constants_internal::find_row(algorithm, rows, setting));
    if constexpr (!C::table().empty()) {
      const auto member = C::table()[row].member;
      std::visit([&](auto m) { constants_internal::assign(constants.*m, setting.value); }, member);
    }
  }
  return constants;
}

}  // namespace pacecar
