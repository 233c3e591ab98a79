#include "apps/commands.h"

int main(int argc, char** argv) {
  return minke::RunCommandLine(argc, argv);
}
