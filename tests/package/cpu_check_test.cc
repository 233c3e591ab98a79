// The program on emulated processors: an old one is refused in words before any instruction that
// it lacks, a recent one is not.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <memory>
#include <string>

namespace minke {
namespace {

struct Outcome {
  int exit_status = -1;  // -1: ended by a signal
  std::string output;    // stdout and stderr
};

Outcome Run(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  for (size_t count = 0; (count = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    outcome.output.append(buffer, count);
  }
  const int status = pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_status = WEXITSTATUS(status);
  return outcome;
}

Outcome RunOn(const std::string& processor) {
  return Run("qemu-x86_64 -cpu " + processor + " " + MINKE_PROGRAM + " --version");
}

bool HasEmulator() {
  return Run("qemu-x86_64 --version").exit_status == 0;
}

TEST(CpuCheck, AProcessorWithoutAvx2IsRefusedInWords) {
  if (!HasEmulator()) GTEST_SKIP() << "missing tool: qemu-x86_64 (package qemu-user)";
  const Outcome outcome = RunOn("Westmere");
  EXPECT_EQ(outcome.exit_status, 2) << outcome.output;
  EXPECT_NE(outcome.output.find("minke: error: this processor lacks"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find(" AVX2 FMA BMI2"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("Haswell (2013)"), std::string::npos) << outcome.output;
}

TEST(CpuCheck, AvxAloneIsNotEnough) {
  if (!HasEmulator()) GTEST_SKIP() << "missing tool: qemu-x86_64 (package qemu-user)";
  const Outcome outcome = RunOn("Haswell,-f16c");
  EXPECT_EQ(outcome.exit_status, 2) << outcome.output;
  EXPECT_NE(outcome.output.find("built for: F16C."), std::string::npos) << outcome.output;
}

TEST(CpuCheck, AProcessorWithAvx2IsNotRefused) {
  if (!HasEmulator()) GTEST_SKIP() << "missing tool: qemu-x86_64 (package qemu-user)";
  const Outcome outcome = RunOn("Haswell");
  EXPECT_EQ(outcome.exit_status, 0) << outcome.output;
  EXPECT_EQ(outcome.output.find("minke: error"), std::string::npos) << outcome.output;
}

}  // namespace
}  // namespace minke
