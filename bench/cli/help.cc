#include "bench/cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cli/command_line.h"

namespace pacecar::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kFirstFlags = 6;
constexpr size_t kColumns = 100;
constexpr size_t kTextColumn = 28;

// The words in the braces of "{mesh,ring}".
std::vector<std::string> choices(std::string_view accepts) {
  if (!accepts.starts_with('{') || !accepts.ends_with('}')) return {};
  std::vector<std::string> words =
      CLI::detail::split(std::string(accepts.substr(1, accepts.size() - 2)), ',');
  for (std::string& word : words) word = word.substr(0, word.find("->"));
  return words;
}

struct Row {
  std::vector<std::string> names;
  std::string value;  // the kind of its value; empty: it takes none
  std::string accepts;
};

Row row_of(const CLI::Option& option) {
  Row row;
  for (const std::string& name : option.get_snames()) row.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) row.names.push_back("--" + name);
  if (row.names.empty()) row.names.push_back(option.get_name(true));
  const std::string type = option.get_items_expected_max() > 0 ? option.get_type_name() : "";
  const size_t colon = std::min(type.find(':'), type.size());
  row.value = type.substr(0, colon);
  row.accepts = type.substr(std::min(colon + 1, type.size()));
  return row;
}

Json describe_option(const CLI::Option& option) {
  const Row row = row_of(option);
  return {{"names", row.names},
          {"value", row.value},
          {"accepts", row.accepts},
          {"choices", choices(row.accepts)},
          {"default", option.get_default_str()},
          {"several", option.get_items_expected_max() > 1},
          {"help", option.get_description()}};
}

// Two columns: the flag, and its text in lines of at most kColumns.
std::string lines_of(const CLI::Option& option) {
  const Row row = row_of(option);
  const bool listed = !choices(row.accepts).empty();
  std::string line = fmt::format("  {}", fmt::join(row.names, ","));
  if (!option.get_positional() && !row.value.empty()) {
    line += " " + (listed ? row.accepts : row.value);
  }
  std::string text = option.get_description();
  if (!option.get_default_str().empty()) text += fmt::format(" ({})", option.get_default_str());
  std::string lines;
  if (line.size() + 2 > kTextColumn) lines = std::exchange(line, "") + "\n";
  line.resize(kTextColumn, ' ');
  for (const std::string& word : CLI::detail::split(text, ' ')) {
    if (line.size() + word.size() > kColumns) {
      lines += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
      line.assign(kTextColumn, ' ');
    }
    line += word + " ";
  }
  return lines + line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

std::string help_of(const CLI::App& app, Shown shown) {
  std::string operands;
  std::string usage = fmt::format("{}\nUsage: {} [flags]", app.get_description(), app.get_name());
  std::string flags;
  std::string group = "Options";  // CLI11's name of the first
  size_t listed = 0;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      usage += fmt::format(" [{}]", option->get_name());
      operands += lines_of(*option);
      continue;
    }
    if (option->get_group() == kSilent) continue;
    if (++listed > kFirstFlags && shown == Shown::kFirst) continue;
    if (option->get_group() != group) {
      group = option->get_group();
      flags += fmt::format("{}:\n", group);
    }
    flags += lines_of(*option);
  }
  std::string help = fmt::format("{}\n\n{}{}", usage, operands, flags);
  if (listed > kFirstFlags && shown == Shown::kFirst) {
    help += fmt::format("  --help-all                all {} flags\n", listed);
  }
  if (!app.get_footer().empty()) help += fmt::format("\n{}\n", app.get_footer());
  return help;
}

std::string describe(const CLI::App& app) {
  Json document = {{"name", app.get_name()},
                   {"summary", app.get_description()},
                   {"footer", app.get_footer()},
                   {"flags", Json::array()},
                   {"operands", Json::array()}};
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional() && option->get_group() == kSilent) continue;
    document[option->get_positional() ? "operands" : "flags"].push_back(describe_option(*option));
  }
  return document.dump(1) + "\n";
}

}  // namespace pacecar::cli
