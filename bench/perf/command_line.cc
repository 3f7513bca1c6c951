#include "bench/perf/command_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "bench/perf/describe.h"
#include "bench/perf/files.h"
#include "transport/base/edit_distance.h"

namespace pacecar::perf {
namespace {

constexpr size_t kSlipOfTheFinger = 2;  // letters; more is another word

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

// `--json FILE.json` as `--json=FILE.json`; another word behind `--json` is not its file. In the
// order that CLI11 wants: the last first.
std::vector<std::string> words_of(int argc, const char* const* argv, bool reads_json) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool file = word.ends_with(".json") && !words.empty() && words.back() == kJsonFlag;
    if (file && !reads_json) {
      words.back() += fmt::format("={}", word);
    } else {
      words.emplace_back(word);
    }
  }
  std::reverse(words.begin(), words.end());
  return words;
}

// The first word that looks like a flag is what is wrong: its value may have been taken for
// something else.
std::string unknown_word(const CLI::App& app, const ParseHints& hints) {
  const std::vector<std::string> left = app.remaining();
  const auto flag = std::find_if(left.begin(), left.end(), [](const std::string& word) {
    return word.size() > 1 && word.front() == '-';
  });
  if (flag == left.end()) return fmt::format("'{}' is one word too many", left.front());
  const std::string name = flag->substr(0, flag->find('='));
  if (hints.unknown_flag != nullptr) {
    if (std::string sentence = hints.unknown_flag(name); !sentence.empty()) return sentence;
  }
  std::string nearest;
  size_t nearest_distance = kSlipOfTheFinger + 1;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& known : option->get_lnames()) {
      const size_t distance = edit_distance(name, "--" + known);
      if (distance >= nearest_distance) continue;
      nearest = known;
      nearest_distance = distance;
    }
  }
  const std::string hint = nearest.empty() ? "" : fmt::format(" (did you mean '--{}'?)", nearest);
  return fmt::format("there is no flag '{}'{}", name, hint);
}

}  // namespace

Result<std::string> parse_command_line(CLI::App& app, int argc, const char* const* argv,
                                       const ParseHints& hints) {
  if (argc == 2 && std::string_view(argv[1]) == "--describe") return describe(app);
  try {
    app.parse(words_of(argc, argv, hints.reads_json));
  } catch (const CLI::CallForHelp&) {
    return app.help();
  } catch (const CLI::CallForVersion& version) {
    return std::string(version.what());
  } catch (const CLI::ExtrasError&) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} (see '{} --help')", unknown_word(app, hints), app.get_name()));
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} (see '{} --help')", error.what(), app.get_name()));
  }
  return std::string();
}

void add_json_flag(CLI::App& app, std::string& file, const std::string& what) {
  const auto without_file = [](std::string& value) {
    if (value == "true") value = kStandardOutput;  // CLI11's, of a flag without a value
    return std::string();
  };
  app.add_flag(std::string(kJsonFlag), file,
               what + " as JSON, to standard output or to a file: --json [FILE.json]")
      ->transform(CLI::Validator(without_file, ""));
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
