// new and delete in all forms, and what happens without memory.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

struct alignas(256) Wide {
  char bytes[300];
};

static int calls;
static void handler() {
  if (++calls == 3) std::set_new_handler(nullptr);
}

int main() {
  delete new int(3);
  delete[] new char[100];
  delete new (std::nothrow) int(3);
  Wide *wide = new Wide;
  if (reinterpret_cast<std::uintptr_t>(wide) % 256) return 1;
  delete wide;
  Wide *many = new (std::nothrow) Wide[10];
  if (reinterpret_cast<std::uintptr_t>(many) % 256) return 2;
  delete[] many;
  volatile std::size_t much = SIZE_MAX / 4;
  if (new (std::nothrow) char[much]) return 3;
  std::set_new_handler(handler);
  try {
    ::operator delete(::operator new(much));
    return 4;
  } catch (const std::bad_alloc &) {
  }
  if (calls != 3) return 5;
  calls = 0;
  std::set_new_handler(handler);
  if (new (std::nothrow) char[much] || calls != 3) return 7;
  std::set_new_handler([] { throw std::bad_alloc(); });
  if (::operator new(much, std::align_val_t(64), std::nothrow)) return 8;
  try {
    ::operator delete(::operator new(much));
    return 9;
  } catch (const std::bad_alloc &) {
  }
  std::set_new_handler(nullptr);
  try {
    ::operator delete(::operator new(much, std::align_val_t(64)), std::align_val_t(64));
    return 6;
  } catch (const std::bad_alloc &) {
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      thread_local std::string last = "a thread's string that is freed while the thread ends";
      std::vector<std::string> lines;
      for (int j = 0; j < 10000; ++j) lines.push_back(last + std::to_string(j));
    });
  for (auto &thread : threads) thread.join();
  std::puts("all forms");
}
