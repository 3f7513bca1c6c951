// Lists of hosts (nodelists, files), and the launchers' commands.
#include <gmock/gmock.h>

#include <cstdlib>

#include "bench/cli/command_line.h"
#include "bench/hosts/targets.h"

namespace pacecar::test::list_test {
namespace {

using namespace hosts;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<std::string> names(const char* text) {
  const auto expanded = expand_names(text);
  EXPECT_TRUE(expanded) << expanded.error().message;
  return expanded ? *expanded : std::vector<std::string>();
}

TEST(NodelistTest, SlurmNodelistsAreExpanded) {
  EXPECT_THAT(names("login1"), ElementsAre("login1"));
  EXPECT_THAT(names("a,b"), ElementsAre("a", "b"));
  EXPECT_THAT(names("gpu[01-03,20],login1"),
              ElementsAre("gpu01", "gpu02", "gpu03", "gpu20", "login1"));
  EXPECT_THAT(names("n[8-11]"), ElementsAre("n8", "n9", "n10", "n11"));
  EXPECT_THAT(names("n[098-101]"), ElementsAre("n098", "n099", "n100", "n101"));
  EXPECT_THAT(names("r[1-2]n[1-2].lan"),
              ElementsAre("r1n1.lan", "r1n2.lan", "r2n1.lan", "r2n2.lan"));
  EXPECT_THAT(names("me@gpu[1-2]"), ElementsAre("me@gpu1", "me@gpu2"));
  EXPECT_THAT(names("n[18446744073709551615]"), ElementsAre("n18446744073709551615"));
}

TEST(NodelistTest, InvalidNodelistIsRefusedInOneSentence) {
  for (const char* text :
       {"", ",", "a,,b", "a,", "gpu[1-2", "gpu1]", "gpu[]", "gpu[a-b]", "gpu[3-1]", "gpu[1-2-3]",
        "gpu[1,]", "g[[1]]", "gpu[1-99999999999999999999]", "gpu[0-5000]", "a[1-100]b[1-100]",
        "gpu[-1]", "gpu[1-]"}) {
    const auto expanded = expand_names(text);
    ASSERT_FALSE(expanded) << text;
    EXPECT_THAT(expanded.error().message, HasSubstr("write names such as gpu[01-16,20]")) << text;
  }
}

TEST(HostListTest, HostFileIsParsed) {
  const auto hosts = parse_host_file(R"(# the rack
gpu01
  root@gpu02 addr=10.0.0.2   # behind the second switch

gpu03 slots=8 max_slots=8
gpu04:8
gpu[05-06] slots=8
fd00::7
)",
                                     "rack.txt");
  ASSERT_TRUE(hosts) << hosts.error().message;
  EXPECT_THAT(*hosts,
              ElementsAre(Host{"gpu01", "gpu01", ""}, Host{"gpu02", "root@gpu02", "10.0.0.2"},
                          Host{"gpu03", "gpu03", ""}, Host{"gpu04", "gpu04", ""},
                          Host{"gpu05", "gpu05", ""}, Host{"gpu06", "gpu06", ""},
                          Host{"fd00::7", "fd00::7", ""}));
}

TEST(HostListTest, MistakesInAFileAreNamedWithTheirLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"gpu01\ngpu02\ngpu01\n", "rack.txt, line 3: 'gpu01' is named twice (first in line 1)"},
      {"gpu01\nme@gpu01\n", "line 2: 'gpu01' is named twice"},
      {"gpu01 adr=10.0.0.1\n",
       "line 1: 'adr=10.0.0.1' is not known: a line is HOST [addr=ADDRESS]"},
      {"gpu[1-2] addr=10.0.0.1\n", "line 1: 2 hosts cannot have one address"},
      {"\n-oProxyCommand=x\n", "line 2: '-oProxyCommand=x' is no host"},
      {"me@-oProxyCommand=x\n", "line 1: 'me@-oProxyCommand=x' is no host"},
      {"gpu[1-\n", "line 1: 'gpu[1-' opens a bracket"},
      {"# nobody\n", "rack.txt names no host"},
  };
  for (const auto& [text, sentence] : cases) {
    const auto hosts = parse_host_file(text, "rack.txt");
    ASSERT_FALSE(hosts) << text;
    EXPECT_THAT(hosts.error().message, HasSubstr(sentence)) << text;
  }
}

TEST(HostListTest, HostsOfTheCommandLineAreParsed) {
  EXPECT_THAT(*parse_host_words("me@a,b"), ElementsAre(Host{"a", "me@a", ""}, Host{"b", "b", ""}));
  EXPECT_THAT(parse_host_words("a,a").error().message,
              HasSubstr("'a' is named twice: leave one out"));
  for (const char* host : {"node1", "user@node1", "192.0.2.1", "::1"}) {
    EXPECT_TRUE(check_host_name(host)) << host;
  }
  for (const char* host : {"", "-oProxyCommand=x", "a b", "a\n", "\x1b[2J", "me@", "@a"}) {
    EXPECT_FALSE(check_host_name(host)) << host;
  }
}

TEST(HostListTest, SlurmJobGivesItsNodes) {
  unsetenv("SLURM_NODELIST");
  unsetenv("SLURM_JOB_NODELIST");
  EXPECT_THAT(read_hosts("slurm").error().message, HasSubstr("SLURM_JOB_NODELIST is not set"));
  setenv("SLURM_JOB_NODELIST", "gpu[1-3]", 1);
  EXPECT_THAT(*read_hosts("slurm"), SizeIs(3));
  unsetenv("SLURM_JOB_NODELIST");
  EXPECT_EQ(read_hosts("/no/such/file").error().code, ErrorCode::kNotFound);
}

std::vector<std::string> launched(const char* launcher, const Host& host = {"h", "me@h", ""}) {
  const auto parsed = Launcher::parse(launcher);
  EXPECT_TRUE(parsed) << parsed.error().message;
  const std::vector<std::string> words{"/opt/my tools/pacecar", "agent"};
  return parsed ? parsed->command(host, words) : std::vector<std::string>();
}

TEST(LauncherTest, EachLauncherHasItsCommand) {
  EXPECT_THAT(launched("ssh"),
              ElementsAre("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o",
                          "ServerAliveInterval=15", "me@h", "'/opt/my tools/pacecar'", "agent"));
  EXPECT_THAT(launched("srun"),
              ElementsAre("srun", "--nodes=1", "--ntasks=1", "--overlap", "--unbuffered",
                          "--nodelist=me@h", "/opt/my tools/pacecar", "agent"));
  EXPECT_THAT(launched("kubectl"),
              ElementsAre("kubectl", "exec", "-i", "me@h", "--", "/opt/my tools/pacecar", "agent"));
  EXPECT_THAT(launched("docker exec -i {host}"),
              ElementsAre("docker", "exec", "-i", "me@h", "/opt/my tools/pacecar", "agent"));
  EXPECT_THAT(launched("/usr/bin/ssh -p 2222"), ElementsAre("/usr/bin/ssh", "-p", "2222", "me@h",
                                                            "'/opt/my tools/pacecar'", "agent"));
  EXPECT_THAT(launched("in 'two words' {host} su - me -c {command}"),
              ElementsAre("in", "two words", "me@h", "su", "-", "me", "-c",
                          "'/opt/my tools/pacecar' agent"));
}

TEST(LauncherTest, WordsAreQuotedForAShell) {
  EXPECT_EQ(cli::shell_quoted("a/b_c-1.0=x"), "a/b_c-1.0=x");
  EXPECT_EQ(cli::shell_quoted(""), "''");
  EXPECT_EQ(cli::shell_quoted("a b"), "'a b'");
  EXPECT_EQ(cli::shell_quoted("it's $HOME `x`;"), R"('it'\''s $HOME `x`;')");
  EXPECT_THAT(*cli::shell_words(R"( a "b c" d\ e 'f"g' "" )"),
              ElementsAre("a", "b c", "d e", "f\"g", ""));
}

TEST(LauncherTest, InvalidLauncherIsRefused) {
  EXPECT_THAT(Launcher::parse(" ").error().message, HasSubstr("--launch is empty"));
  EXPECT_THAT(Launcher::parse("ssh 'x").error().message, HasSubstr("does not close it"));
}

}  // namespace
}  // namespace pacecar::test::list_test
