// Words of memory that one process allocates and other processes of its host map, identified by the
// number of that process and of the memory's file descriptor. The memory is freed once all of them
// have ended, in whatever way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dapple::exec {

/// A mapping of the shared memory.
class SharedWords {
 public:
  /// The number of words. Physical memory is allocated only for those that are written.
  static constexpr std::size_t kCount = std::size_t{1} << 20;

  SharedWords() = default;
  ~SharedWords();
  SharedWords(SharedWords&& other) noexcept;
  SharedWords& operator=(SharedWords&& other) noexcept;

  /// Allocates zero-initialized words, followed by the word `tag`, by which the other processes
  /// recognize the right memory. Throws Error(Environment).
  static SharedWords create(std::uint64_t tag);
  /// Maps the memory that another process has allocated. Throws Error(Environment), also if it does
  /// not have this tag.
  static SharedWords attach(std::int64_t process, std::int64_t file, std::uint64_t tag);

  std::int64_t file() const { return file_; }
  std::span<std::int64_t> words() const { return {words_, kCount}; }

 private:
  static SharedWords mapped(int file);

  int file_ = -1;
  std::int64_t* words_ = nullptr;
};

}  // namespace dapple::exec
