// Containers on a node: an allocator, a std::pmr resource of size classes, and one of pages by a policy.
//
// c++ -std=c++17 containers.cpp $(pkg-config --cflags --libs nearpage)
#include <nearpage.hpp>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

int main() {
  nearpage_memory_options options = {};
  options.size = sizeof options;
  options.bytes_per_node = 64 << 20;
  options.fake_nodes = 2;
  nearpage::memory memory(&options);

  std::vector<int, nearpage::allocator<int>> numbers{nearpage::allocator<int>(memory, 1)};
  for (int i = 0; i < 100000; ++i) numbers.push_back(i);
  std::printf("numbers on node %d\n", nearpage_node_of(memory.get(), numbers.data()));
  if (nearpage_node_of(memory.get(), numbers.data()) != 1) return 1;

  nearpage::node_resource near(memory, 0);
  std::pmr::map<int, std::pmr::string> names(&near);
  for (int i = 0; i < 1000; ++i) names.emplace(i, "a string that is too long for its own place " + std::to_string(i));
  if (names.at(999).back() != '9') return 1;

  const std::uint32_t nodes[] = {0, 1};
  nearpage_policy_options all = {};
  all.size = sizeof all;
  all.kind = NEARPAGE_POLICY_INTERLEAVE;
  all.nodes = nodes;
  all.count = 2;
  nearpage::policy interleave(memory, all);
  nearpage::policy_resource blocks(memory, interleave);
  {
    std::pmr::monotonic_buffer_resource arena(1 << 16, &blocks);
    std::pmr::vector<std::pmr::string> lines(&arena);
    for (int i = 0; i < 10000; ++i) lines.emplace_back("another string that needs memory of its own");
    std::printf("%zu lines\n", lines.size());
  }

  nearpage::pages page(memory, 0, NEARPAGE_ZERO);
  static const char zeroes[4096] = {};
  if (std::memcmp(page.data(), zeroes, sizeof zeroes) != 0) return 1;

  try {
    nearpage::pages too_large(memory, 11);
    return 1;
  } catch (const std::system_error& error) {
    std::printf("refused: %s\n", error.what());
  }
  // Vectors of gigabytes, one by each of the two ways; what is not touched costs nothing.
  const std::size_t gigabytes = std::size_t(2) << 30;
  std::vector<char, nearpage::allocator<char>> large{nearpage::allocator<char>(memory, 1)};
  large.reserve(gigabytes);
  for (int i = 0; i < 10000000; ++i) large.push_back(static_cast<char>(i));
  std::pmr::vector<long> longs(&near);
  longs.reserve(gigabytes / sizeof(long));
  longs.assign(1000000, 7);
  if (large[9999999] != static_cast<char>(9999999) || longs[999999] != 7) return 1;
  if (nearpage_node_of(memory.get(), &large[9999999]) != 1) return 1;
  if (nearpage_node_of(memory.get(), &longs[999999]) != 0) return 1;

  try {
    std::vector<char, nearpage::allocator<char>> much{nearpage::allocator<char>(memory)};
    much.resize(std::size_t(1) << 40);
    return 1;
  } catch (const std::bad_alloc& error) {
    std::printf("refused: %s\n", error.what());
    if (std::strstr(error.what(), "1099511627776") == nullptr) return 1;
  }
  nearpage_set_limits(memory.get(), 0, gigabytes / 2 * 3, 0);
  try {
    std::pmr::vector<char> more(&near);
    more.reserve(gigabytes);
    return 1;
  } catch (const std::bad_alloc& error) {
    std::printf("refused: %s\n", error.what());
    if (std::strstr(error.what(), "hard limit of node 0") == nullptr) return 1;
  }
  return memory.text(NEARPAGE_TEXT_ZONEINFO).find("Node 1") == std::string::npos;
}
