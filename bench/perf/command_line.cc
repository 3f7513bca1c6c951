#include "bench/perf/command_line.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "bench/perf/describe.h"

namespace pacecar::perf {
namespace {

std::optional<uint64_t> parse_whole(std::string_view text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  unsigned shift = 0;
  if (!text.empty()) {
    const size_t unit = std::string_view("KMG").find(
        static_cast<char>(std::toupper(static_cast<unsigned char>(text.back()))));
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  const auto value = parse_whole(text);
  if (!value || *value > (UINT64_MAX >> shift)) return std::nullopt;
  return *value << shift;
}

std::optional<double> parse_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

Result<std::string> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--describe") return describe(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} (see '{} --help')", error.what(), app.get_name()));
  }
  return std::string();
}

CLI::Validator whole_number(uint64_t min, uint64_t max) {
  return CLI::Validator(
      [min, max](std::string& text) {
        const auto value = parse_whole(text);
        if (value && *value >= min && *value <= max) return std::string();
        return fmt::format("'{}' is not a whole number from {} to {}", text, min, max);
      },
      "");
}

CLI::Validator byte_count(uint64_t min, uint64_t max) {
  return CLI::Validator(
      [min, max](std::string& text) {
        const auto value = parse_bytes(text);
        if (!value || *value < min || *value > max) {
          return fmt::format(
              "'{}' is not a number of bytes from {} to {} (K, M and G multiply by "
              "1024)",
              text, min, max);
        }
        text = std::to_string(*value);
        return std::string();
      },
      "");
}

CLI::Validator positive_number(double max) {
  return CLI::Validator(
      [max](std::string& text) {
        const auto value = parse_number(text);
        if (value && *value > 0 && *value <= max) return std::string();
        return fmt::format("'{}' is not a number above 0 and at most {:g}", text, max);
      },
      "");
}

}  // namespace pacecar::perf
