#include "transport/base/params_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <system_error>

#include "transport/base/return_if_error.h"

namespace pacecar {

namespace {

constexpr std::string_view kPrefix = "PACECAR_";
constexpr std::string_view kConfFileName = "PACECAR_CONF_FILE";
constexpr size_t kLargestFile = 64 << 10;

tl::unexpected<Error> fail_to_read(const std::string& file, int error) {
  const ErrorCode code = error == ENOENT                     ? ErrorCode::kNotFound
                         : error == EACCES || error == EPERM ? ErrorCode::kPermission
                                                             : ErrorCode::kSystem;
  return fail(code,
              fmt::format("the parameter file {} cannot be read ({}): correct its name or its "
                          "permissions, or remove the setting {}",
                          file, std::generic_category().message(error), kConfFileName));
}

Result<std::string> read_file(const std::string& file) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "re"),
                                                               &std::fclose);
  if (stream == nullptr) return fail_to_read(file, errno);
  std::string text(kLargestFile + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), stream.get()));
  if (std::ferror(stream.get()) != 0) return fail_to_read(file, errno);
  if (text.size() > kLargestFile) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the parameter file {} is larger than {} bytes: name a file of "
                            "NAME=VALUE lines",
                            file, kLargestFile));
  }
  return text;
}

Result<std::vector<ParamSetting>> read_settings(const std::string& file) {
  return read_file(file).and_then(
      [&](const std::string& text) { return parse_param_file(text, file); });
}

std::vector<ParamSetting> environment_settings() {
  std::vector<ParamSetting> settings;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    settings.push_back(
        {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)), "environment"});
  }
  return settings;
}

// Settings of other programs that apply where ours are not set.
std::vector<ParamSetting> borrowed_settings() {
  const char* const interface = std::getenv("NCCL_SOCKET_IFNAME");
  if (interface == nullptr) return {};
  return {{"PACECAR_BOOTSTRAP", interface, "NCCL_SOCKET_IFNAME"}};
}

}  // namespace

Result<Params> load_params_from_environment(std::span<const ParamSetting> given,
                                            std::vector<std::string>* warnings,
                                            const std::string& system_file,
                                            std::span<const ParamSetting> defaults) {
  std::vector<ParamSetting> direct = environment_settings();
  direct.insert(direct.end(), given.begin(), given.end());
  std::string conf_file;
  for (const ParamSetting& setting : direct) {
    if (setting.name == kConfFileName) conf_file = setting.value;
  }

  auto settings = read_settings(system_file);
  if (!settings && settings.error().code == ErrorCode::kNotFound) settings.emplace();
  if (!settings) return tl::unexpected(settings.error());
  settings->insert(settings->begin(), defaults.begin(), defaults.end());
  const std::vector<ParamSetting> borrowed = borrowed_settings();
  settings->insert(settings->begin(), borrowed.begin(), borrowed.end());
  if (!conf_file.empty()) {
    ASSIGN_OR_RETURN(const auto more, read_settings(conf_file));
    settings->insert(settings->end(), more.begin(), more.end());
  }
  settings->insert(settings->end(), direct.begin(), direct.end());
  return load_params(*settings, warnings);
}

}  // namespace pacecar
