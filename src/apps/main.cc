#include <csignal>

#include "apps/commands.h"
#include "apps/last_words.h"

// What can still be thrown is that memory ran out, and then there is nothing to save.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) {
  // A limit on the size of files is an error like a full disk, not the end of the program.
  std::signal(SIGXFSZ, SIG_IGN);
  minke::ExplainSuddenEnds();
  return minke::RunCommandLine(argc, argv);
}
