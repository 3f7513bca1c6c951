#include "bench/perf/describe.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

namespace pacecar::perf {
namespace {

using Json = nlohmann::json;

// Of "TEXT:{mesh,ring}" the words in braces.
std::vector<std::string> choices(std::string_view accepts) {
  if (!accepts.starts_with('{') || !accepts.ends_with('}')) return {};
  std::vector<std::string> words =
      CLI::detail::split(std::string(accepts.substr(1, accepts.size() - 2)), ',');
  for (std::string& word : words) word = word.substr(0, word.find("->"));
  return words;
}

Json describe_option(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  if (names.empty()) names.push_back(option.get_name(true));
  const bool takes_value = option.get_items_expected_max() > 0;
  const std::string type = takes_value ? option.get_type_name() : "";
  const size_t colon = std::min(type.find(':'), type.size());
  const std::string accepts = type.substr(std::min(colon + 1, type.size()));
  return {{"names", names},
          {"value", type.substr(0, colon)},
          {"accepts", accepts},
          {"choices", choices(accepts)},
          {"default", option.get_default_str()},
          {"several", option.get_items_expected_max() > 1},
          {"help", option.get_description()}};
}

}  // namespace

std::string describe(const CLI::App& app) {
  Json document = {{"name", app.get_name()},
                   {"summary", app.get_description()},
                   {"footer", app.get_footer()},
                   {"flags", Json::array()},
                   {"operands", Json::array()}};
  for (const CLI::Option* option : app.get_options()) {
    document[option->get_positional() ? "operands" : "flags"].push_back(describe_option(*option));
  }
  return document.dump(1) + "\n";
}

}  // namespace pacecar::perf
