/*
 * nearpage for C++11 and later: memories, pages and caches that end themselves, an allocator for containers, and from
 * C++17 on a std::pmr::memory_resource. Everything stands on nearpage.h.
 */
#ifndef NEARPAGE_HPP
#define NEARPAGE_HPP

#include "nearpage.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#if __cplusplus >= 201703L && defined(__has_include)
#if __has_include(<memory_resource>)
#include <memory_resource>
#define NEARPAGE_HAS_PMR 1
#endif
#endif

namespace nearpage {

/* An error of the library, with its errno and its message. */
inline std::system_error error(int answer) {
  return std::system_error(-answer, std::generic_category(), nearpage_last_error());
}

/* Out of memory, with the reason: what() says which node, limit or size it was. */
class out_of_memory : public std::bad_alloc {
 public:
  explicit out_of_memory(const char* why) noexcept {
    std::strncpy(why_, why, sizeof why_ - 1);
    why_[sizeof why_ - 1] = 0;
  }
  const char* what() const noexcept override { return why_; }

 private:
  char why_[512]; /* No memory is needed to tell that there is none. */
};

/* Out of memory is a std::bad_alloc, as everywhere in C++; all else is std::system_error. */
inline void check(int answer) {
  if (answer == -ENOMEM) throw out_of_memory(nearpage_last_error());
  if (answer < 0) throw error(answer);
}

/* A memory that ends with this object. */
class memory {
 public:
  memory() : memory(nullptr) {}
  explicit memory(const nearpage_memory_options* options) : handle_(nullptr) {
    check(nearpage_memory_create(options, &handle_));
  }
  memory(memory&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  memory& operator=(memory&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  memory(const memory&) = delete;
  memory& operator=(const memory&) = delete;
  ~memory() { nearpage_memory_destroy(handle_); }

  nearpage_memory* get() const noexcept { return handle_; }

  /* A text of the memory: NEARPAGE_TEXT_ZONEINFO and the others. */
  std::string text(uint32_t kind, int32_t node = NEARPAGE_ANY_NODE) const {
    std::int64_t bytes = nearpage_text(handle_, kind, node, nullptr, 0);
    if (bytes < 0) throw error(static_cast<int>(bytes));
    std::string text;
    do {
      text.resize(static_cast<std::size_t>(bytes) + 1);
      bytes = nearpage_text(handle_, kind, node, &text[0], text.size());
      if (bytes < 0) throw error(static_cast<int>(bytes));
    } while (static_cast<std::size_t>(bytes) >= text.size());
    text.resize(static_cast<std::size_t>(bytes));
    return text;
  }

 private:
  nearpage_memory* handle_;
};

/* A policy that ends with this object. */
class policy {
 public:
  policy(const memory& memory, const nearpage_policy_options& options) : handle_(nullptr) {
    check(nearpage_policy_create(memory.get(), &options, &handle_));
  }
  policy(policy&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  policy(const policy&) = delete;
  policy& operator=(const policy&) = delete;
  ~policy() { nearpage_policy_destroy(handle_); }

  const nearpage_policy* get() const noexcept { return handle_; }

 private:
  nearpage_policy* handle_;
};

/* A block of 2^order pages, freed with this object. */
class pages {
 public:
  explicit pages(const memory& memory, uint32_t order = 0, uint32_t flags = 0,
                 int32_t node = NEARPAGE_ANY_NODE)
      : memory_(memory.get()), start_(nullptr), order_(order) {
    check(nearpage_pages_alloc(memory_, order, flags, node, &start_));
  }
  pages(const memory& memory, const policy& by, uint32_t order = 0, uint32_t flags = 0)
      : memory_(memory.get()), start_(nullptr), order_(order) {
    check(nearpage_pages_alloc_by(memory_, by.get(), order, flags, &start_));
  }
  pages(pages&& other) noexcept
      : memory_(other.memory_), start_(other.start_), order_(other.order_) {
    other.start_ = nullptr;
  }
  pages& operator=(pages&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(start_, other.start_);
    std::swap(order_, other.order_);
    return *this;
  }
  pages(const pages&) = delete;
  pages& operator=(const pages&) = delete;
  ~pages() { nearpage_pages_free(memory_, start_, order_); }

  void* data() const noexcept { return start_; }
  std::size_t size() const noexcept { return static_cast<std::size_t>(4096) << order_; }
  int node() const noexcept { return nearpage_node_of(memory_, start_); }
  /* Gives up ownership: nearpage_pages_free frees the block. */
  void* release() noexcept {
    void* start = start_;
    start_ = nullptr;
    return start;
  }

 private:
  nearpage_memory* memory_;
  void* start_;
  uint32_t order_;
};

/* Bytes for a container, of any size. */
inline void* bytes_for(nearpage_memory* memory, std::size_t bytes, std::size_t align, int32_t node) {
  void* start = nullptr;
  check(nearpage_bytes_alloc(memory, bytes == 0 ? 1 : bytes, align, 0, node, &start));
  return start;
}

/* An allocator for containers: std::vector<int, nearpage::allocator<int>>. The memory must outlive the container. */
template <class T>
class allocator {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  explicit allocator(const memory& memory, int32_t node = NEARPAGE_ANY_NODE) noexcept
      : memory_(memory.get()), node_(node) {}
  template <class U>
  allocator(const allocator<U>& other) noexcept : memory_(other.owner()), node_(other.node()) {}

  T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(bytes_for(memory_, count * sizeof(T), alignof(T), node_));
  }
  void deallocate(T* bytes, std::size_t) noexcept { nearpage_bytes_free(memory_, bytes); }

  nearpage_memory* owner() const noexcept { return memory_; }
  int32_t node() const noexcept { return node_; }

 private:
  nearpage_memory* memory_;
  int32_t node_;
};

template <class T, class U>
bool operator==(const allocator<T>& a, const allocator<U>& b) noexcept {
  return a.owner() == b.owner() && a.node() == b.node();
}
template <class T, class U>
bool operator!=(const allocator<T>& a, const allocator<U>& b) noexcept {
  return !(a == b);
}

#ifdef NEARPAGE_HAS_PMR
/* Memory of one node, or of any, for the containers of std::pmr. */
class node_resource : public std::pmr::memory_resource {
 public:
  explicit node_resource(const memory& memory, int32_t node = NEARPAGE_ANY_NODE) noexcept
      : memory_(memory.get()), node_(node) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    return bytes_for(memory_, bytes, align, node_);
  }
  void do_deallocate(void* start, std::size_t, std::size_t) override {
    nearpage_bytes_free(memory_, start);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    const node_resource* same = dynamic_cast<const node_resource*>(&other);
    return same != nullptr && same->memory_ == memory_;
  }

  nearpage_memory* memory_;
  int32_t node_;
};

/* Blocks of pages by a policy, up to 4 MiB each: the upstream of a std::pmr::monotonic_buffer_resource or of a pool. */
class policy_resource : public std::pmr::memory_resource {
 public:
  policy_resource(const memory& memory, const policy& by) noexcept
      : memory_(memory.get()), policy_(by.get()) {}

 private:
  static uint32_t order_of(std::size_t bytes, std::size_t align) noexcept {
    const std::size_t most = bytes > align ? bytes : align;
    uint32_t order = 0;
    while (order < 64 - 12 && (static_cast<std::size_t>(4096) << order) < most) ++order;
    return order;
  }
  void* do_allocate(std::size_t bytes, std::size_t align) override {
    const uint32_t order = order_of(bytes, align);
    if (order > 10) throw out_of_memory("a block of pages by a policy has at most 4 MiB");
    void* start = nullptr;
    check(nearpage_pages_alloc_by(memory_, policy_, order, 0, &start));
    return start;
  }
  void do_deallocate(void* start, std::size_t bytes, std::size_t align) override {
    nearpage_pages_free(memory_, start, order_of(bytes, align));
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    const policy_resource* same = dynamic_cast<const policy_resource*>(&other);
    return same != nullptr && same->memory_ == memory_;
  }

  nearpage_memory* memory_;
  const nearpage_policy* policy_;
};
#endif

}  // namespace nearpage

#endif
