// The HTTP server when memory does not suffice: each allocation on the way of a request fails once.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

#include "server/http_server_answer.h"
#include "tests/server/raw_client.h"
#include "tests/server/test_handler.h"

namespace {

std::atomic<pid_t> spared_thread{0};    // where every allocation succeeds
std::atomic<int> allocations_left{-1};  // until one fails; below zero none does any more

bool Refuses() {
  if (allocations_left.load() < 0 || ::gettid() == spared_thread.load()) return false;
  return allocations_left.fetch_sub(1) == 0;
}

void* Take(size_t bytes) noexcept {
  return Refuses() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}

}  // namespace

// gcc takes these for those of the library where it inlines them.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
// All that a sanitizer would pair with each other.
void* operator new(size_t bytes) {
  void* const memory = Take(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t& /*nothrow*/) noexcept {
  return Take(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace minke::test {
namespace {

TEST(HttpServerMemory, AClientThatGetsNoMemoryIsToldAndTheNextOneIsServed) {
  spared_thread = ::gettid();
  int failures = 0;
  bool failed = true;
  while (failed && !::testing::Test::HasFailure()) {
    const auto server = StartServer(AnyPort(), [](const std::shared_ptr<HttpExchange>& exchange) {
      exchange->Respond(200, {{"content-type", "text/plain"}}, std::string(1000, 'x'));
    });
    allocations_left = failures;
    RawClient unlucky(server->port());
    unlucky.Send(GetRequest("/a/path/that/is/longer/than/a/string/holds"));
    EXPECT_TRUE(unlucky.ReadAnswer().complete || unlucky.WaitForEnd()) << "allocation " << failures;
    failed = allocations_left.exchange(-1) < 0;
    EXPECT_EQ(RawClient(server->port()).Ask(GetRequest("/next")).status, 200)
        << "after allocation " << failures;
    unlucky.Close();
    EXPECT_TRUE(WaitUntil([&] { return server->status().connections == 0; }))
        << server->status().connections << " after allocation " << failures;
    if (failed) ++failures;
  }
  EXPECT_GT(failures, 10) << "a request needs more allocations than that";
}

}  // namespace
}  // namespace minke::test
