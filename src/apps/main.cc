#include <csignal>

#include "apps/commands.h"

// What can still be thrown is that memory ran out, and then there is nothing to say or to save.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) {
  // A limit on the size of files is an error like a full disk, not the end of the program.
  std::signal(SIGXFSZ, SIG_IGN);
  return minke::RunCommandLine(argc, argv);
}
