// Refuses a processor without AVX2 in words instead of dying of an illegal instruction. The rest
// of the program is compiled for x86-64-v3, so its static initialisers may already use such
// instructions; hence this file is compiled for plain x86-64 (see cmake/sources.cmake), runs in
// the first constructor of the process and calls nothing but the operating system.
#include <cpuid.h>
#include <unistd.h>

#include <cstring>

namespace minke {
namespace {

constexpr int kExitCode = 2;  // a wrong use of the program, like a bad flag

void Write(const char* text) {
  // Nothing can be done about a failed write: the process ends either way.
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

// Names each missing extension, in one sentence with the way out. Priority 101 is the first that
// programs may use; static initialisers run after all numbered ones.
__attribute__((constructor(101))) void RefuseOldProcessor() {
  __builtin_cpu_init();  // these also ask whether the operating system saves the registers
  const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  const bool fma = __builtin_cpu_supports("fma") != 0;
  const bool bmi2 = __builtin_cpu_supports("bmi2") != 0;
  // Clang 14 knows no name for the other two, so they are read from leaf 1.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool has_leaf = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0;
  const bool aes = has_leaf && (ecx & bit_AES) != 0;
  const bool f16c = has_leaf && (ecx & bit_F16C) != 0;
  if (avx2 && fma && bmi2 && aes && f16c) return;
  Write("minke: error: this processor lacks instructions that minke is built for:");
  if (!avx2) Write(" AVX2");
  if (!fma) Write(" FMA");
  if (!bmi2) Write(" BMI2");
  if (!aes) Write(" AES");
  if (!f16c) Write(" F16C");
  Write(
      ". Run it on an x86-64 processor with AVX2: Intel Core from Haswell (2013) on, AMD from Zen "
      "(2017) on; in a virtual machine, let the guest see the host's processor.\n");
  _exit(kExitCode);
}

}  // namespace
}  // namespace minke
