// The Debian package and the unit in it, as far as that can be seen without installing it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::TempDirectory;

struct ShellOutcome {
  int exit_status = -1;
  std::string output;  // stdout and stderr
};

ShellOutcome Shell(const std::string& command) {
  ShellOutcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer = {};
  for (size_t count = 0; (count = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.output.append(buffer.data(), count);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_status = WEXITSTATUS(status);
  return outcome;
}

bool HasTool(const std::string& name) {
  return Shell("command -v " + name).exit_status == 0;
}

std::string SourceText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(std::string(MINKE_SOURCE_DIR) + "/" + path).rdbuf();
  return text.str();
}

TEST(DebianPackage, HasProgramModelUnitAndDocuments) {
  for (const char* tool : {"cpack", "dpkg-deb", "dpkg-shlibdeps"}) {
    if (!HasTool(tool)) GTEST_SKIP() << "missing tool: " << tool << " (package dpkg-dev)";
  }
  const TempDirectory directory;
  const ShellOutcome made = Shell("cpack -G DEB -B " + directory.path() + " --config " +
                                  MINKE_BINARY_DIR + "/CPackConfig.cmake");
  ASSERT_EQ(made.exit_status, 0) << made.output;
  const std::string file = directory.Path("minke_*.deb");
  const ShellOutcome contents = Shell("dpkg-deb --contents " + file);
  ASSERT_EQ(contents.exit_status, 0) << contents.output;
  for (const char* name :
       {" ./usr/bin/minke\n", " ./usr/lib/systemd/system/minke.service\n",
        " ./etc/minke/minke.env\n", "/config.json\n", "/tokenizer.json\n", "/model.safetensors\n",
        " ./usr/share/minke/grafana/minke.json\n", " ./usr/share/doc/minke/copyright\n",
        " ./usr/share/doc/minke/README.md\n", " ./usr/share/doc/minke/deployment.md\n",
        " ./usr/share/doc/minke/formats/prices.md\n"}) {
    EXPECT_NE(contents.output.find(name), std::string::npos) << name << contents.output;
  }
  // Nothing of the libraries, and nothing that is not root's.
  for (const char* name : {".a\n", ".h\n", "cmake", "/usr/local"}) {
    EXPECT_EQ(contents.output.find(name), std::string::npos) << name << contents.output;
  }
  std::istringstream lines(contents.output);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_NE(line.find(" root/root "), std::string::npos) << line;
    EXPECT_NE(line[8], 'w') << line;
  }
  const ShellOutcome info = Shell("dpkg-deb --info " + file);
  ASSERT_EQ(info.exit_status, 0) << info.output;
  for (const char* part : {"Package: minke\n", "Architecture: amd64\n", "libsqlite3-0", "libssl3",
                           "libc6", "postinst", "prerm", "postrm", "conffiles"}) {
    EXPECT_NE(info.output.find(part), std::string::npos) << part << "\n" << info.output;
  }
  // The program runs from where the package puts it, and finds its model there. Where the model
  // that ships has no weights yet, the package has another one, which is named.
  ASSERT_EQ(Shell("dpkg-deb --extract " + file + " " + directory.Path("root")).exit_status, 0);
  const bool ships = contents.output.find("models/nano/model.safetensors") != std::string::npos;
  const std::string model =
      ships ? "" : " --model " + directory.Path("root/usr/share") + "/minke/models/mini";
  const ShellOutcome run = Shell("env -u MINKE_MODEL " + directory.Path("root/usr/bin/minke") +
                                 " tokenize Hello" + model);
  EXPECT_EQ(run.exit_status, 0) << run.output;
}

TEST(DebianPackage, ScriptsAreShellScripts) {
  for (const char* name : {"postinst", "prerm", "postrm"}) {
    const std::string path = std::string(MINKE_SOURCE_DIR) + "/contrib/debian/" + name;
    const ShellOutcome checked = Shell("sh -n " + path);
    EXPECT_EQ(checked.exit_status, 0) << name << checked.output;
    // An unknown action does nothing.
    const ShellOutcome run = Shell("sh " + path + " abort-upgrade");
    EXPECT_EQ(run.exit_status, 0) << name << run.output;
  }
}

TEST(SystemdUnit, IsWhatSystemdReads) {
  if (!HasTool("systemd-analyze"))
    GTEST_SKIP() << "missing tool: systemd-analyze (package systemd)";
  const TempDirectory directory;
  std::string unit = SourceText("contrib/systemd/minke.service");
  const std::string installed = "ExecStart=/usr/bin/minke";
  const size_t at = unit.find(installed);
  ASSERT_NE(at, std::string::npos);
  unit.replace(at, installed.size(), "ExecStart=" + std::string(MINKE_PROGRAM));
  directory.Write("minke.service", unit);
  const ShellOutcome verified =
      Shell("systemd-analyze verify --man=no " + directory.Path("minke.service"));
  EXPECT_EQ(verified.exit_status, 0) << verified.output;
  EXPECT_EQ(verified.output.find("minke.service:"), std::string::npos) << verified.output;
  // An unknown word in the unit is noticed.
  directory.Write("wrong.service", unit + "\n[Service]\nNoSuchSetting=yes\n");
  const ShellOutcome wrong =
      Shell("systemd-analyze verify --man=no " + directory.Path("wrong.service"));
  EXPECT_NE(wrong.output.find("NoSuchSetting"), std::string::npos) << wrong.output;
}

TEST(SystemdUnit, IsHardened) {
  if (!HasTool("systemd-analyze"))
    GTEST_SKIP() << "missing tool: systemd-analyze (package systemd)";
  // 10 is an unprotected service; systemd calls below 2 "OK".
  const ShellOutcome rated =
      Shell("systemd-analyze security --offline=true --threshold=20 --no-pager " +
            std::string(MINKE_SOURCE_DIR) + "/contrib/systemd/minke.service");
  EXPECT_EQ(rated.exit_status, 0) << rated.output;
}

}  // namespace
}  // namespace minke
