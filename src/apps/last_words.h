// What is said where the program cannot go on and no function could return an error.
#pragma once

namespace minke {

// From this call on these end the program with kExitFailure and a line on stderr, from whatever
// thread:
// - A mapped file became shorter, or its disk failed, while it was in use. Weights and the index of
//   the disk cache are read where they are mapped, so a page that is no longer there is SIGBUS. The
//   line names the file. Where somebody, such as a sanitizer, already handles the signal, it stays
//   theirs.
// - The system gives no more memory.
// Nothing is lost by that: the disk cache and the ledger outlive a process that is killed.
void ExplainSuddenEnds();

}  // namespace minke
