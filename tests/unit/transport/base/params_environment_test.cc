#include "transport/base/params_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/support/scratch_directory.h"

namespace pacecar::params_environment_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Sets environment variables and files for one test and removes them afterwards.
class ParamsEnvironment : public testing::Test {
 protected:
  void SetUp() override {
    // PACECAR_* variables of the caller's environment must not affect the tests.
    for (const ParamInfo& info : param_table()) unsetenv(std::string(info.name).c_str());
  }
  void TearDown() override {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }

  void set(const std::string& name, const std::string& value) {
    names_.push_back(name);
    setenv(name.c_str(), value.c_str(), 1);
  }
  std::string file(const std::string& name, const std::string& text) {
    const std::string path = folder_.path() / name;
    std::ofstream(path) << text;
    return path;
  }
  Result<Params> load(const std::vector<ParamSetting>& given = {}) {
    return load_params_from_environment(given, &warnings_, system_file_);
  }

  test::ScratchDirectory folder_;
  std::string system_file_ = folder_.path() / "missing";
  std::vector<std::string> warnings_;

 private:
  std::vector<std::string> names_;
};

TEST_F(ParamsEnvironment, UnsetParametersHaveDefaults) {
  const auto params = load();
  ASSERT_TRUE(params) << params.error().message;
  EXPECT_EQ(params->cc, "pace");
}

TEST_F(ParamsEnvironment, PriorityIsGivenThenEnvironmentThenFileThenSystemFile) {
  system_file_ = file("system", "PACECAR_CC=s\nPACECAR_PCAP=s\nPACECAR_FAULT=s\nPACECAR_NICS=s\n");
  const std::string conf = file("conf", "PACECAR_CC=f\nPACECAR_PCAP=f\nPACECAR_FAULT=f\n");
  set("PACECAR_CONF_FILE", conf);
  set("PACECAR_CC", "e");
  set("PACECAR_PCAP", "e");
  const auto params = load({{"PACECAR_CC", "g", "command line"}});
  ASSERT_TRUE(params) << params.error().message;
  EXPECT_EQ(params->cc, "g");
  EXPECT_EQ(params->pcap, "e");
  EXPECT_EQ(params->fault, "f");
  EXPECT_EQ(params->nics, "s");
  for (size_t row = 0; row < param_table().size(); ++row) {
    const std::string_view name = param_table()[row].name;
    const std::string_view expected = name == "PACECAR_CC"          ? "command line"
                                      : name == "PACECAR_PCAP"      ? "environment"
                                      : name == "PACECAR_CONF_FILE" ? "environment"
                                      : name == "PACECAR_FAULT"     ? std::string_view(conf)
                                      : name == "PACECAR_NICS"      ? std::string_view(system_file_)
                                                                    : "default";
    EXPECT_EQ(params->origin(row), expected) << name;
  }
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(ParamsEnvironment, FileMayBeGivenByTheCaller) {
  const std::string conf = file("given", "PACECAR_PATHS=7\n");
  const auto params = load({{"PACECAR_CONF_FILE", conf, "command line"}});
  ASSERT_TRUE(params) << params.error().message;
  EXPECT_EQ(params->paths, 7U);
}

TEST_F(ParamsEnvironment, ApplicationsDefaultsHaveTheLowestPriority) {
  system_file_ = file("system", "PACECAR_PATHS=7\n");
  set("PACECAR_MTU", "1024");
  const std::vector<ParamSetting> defaults{{"PACECAR_PATHS", "3", "application"},
                                           {"PACECAR_MTU", "512", "application"},
                                           {"PACECAR_TC", "104", "application"}};
  const auto params = load_params_from_environment({}, nullptr, system_file_, defaults);
  ASSERT_TRUE(params) << params.error().message;
  EXPECT_EQ(params->paths, 7U);
  EXPECT_EQ(params->mtu, 1024U);
  EXPECT_EQ(params->tc, 104U);
}

TEST_F(ParamsEnvironment, NamedFileMustExist) {
  set("PACECAR_CONF_FILE", "/nonexistent/pacecar.conf");
  const auto params = load();
  ASSERT_FALSE(params);
  EXPECT_EQ(params.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(params.error().message, HasSubstr("/nonexistent/pacecar.conf"));
}

TEST_F(ParamsEnvironment, DirectoryIsAnError) {
  set("PACECAR_CONF_FILE", testing::TempDir());
  const auto params = load();
  ASSERT_FALSE(params);
  EXPECT_EQ(params.error().code, ErrorCode::kSystem);
}

TEST_F(ParamsEnvironment, EndlessFileIsAnError) {
  set("PACECAR_CONF_FILE", "/dev/zero");
  const auto params = load();
  ASSERT_FALSE(params);
  EXPECT_THAT(params.error().message, HasSubstr("larger than 65536 bytes"));
}

TEST_F(ParamsEnvironment, BadLineOfTheSystemFileIsAnError) {
  system_file_ = file("bad", "PACECAR_CC\n");
  const auto params = load();
  ASSERT_FALSE(params);
  EXPECT_THAT(params.error().message, HasSubstr("line 1 of " + system_file_));
}

TEST_F(ParamsEnvironment, OnlyUnknownVariablesWithOurPrefixWarn) {
  set("PACECAR_PATSH", "4");
  set("SPACECAR_PATHS", "4");
  ASSERT_TRUE(load());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("PACECAR_PATHS?")));
}

}  // namespace
}  // namespace pacecar::params_environment_test
