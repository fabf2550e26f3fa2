// Words of memory that one process gives and others of its host look at, by its number and that of
// the memory's file. Nothing is left of them once all have ended, however they do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dapple::exec {

class SharedWords {
 public:
  /// Of this process and its children no memory is taken before they are written to.
  static constexpr std::size_t kCount = std::size_t{1} << 20;

  SharedWords() = default;
  ~SharedWords();
  SharedWords(SharedWords&& other) noexcept;
  SharedWords& operator=(SharedWords&& other) noexcept;

  /// Zero but for a last one, `mark`, by which others see that it is the memory that they mean.
  /// Throws Error(Environment), as the next.
  static SharedWords give(std::uint64_t mark);
  static SharedWords look_at(std::int64_t process, std::int64_t file, std::uint64_t mark);

  std::int64_t file() const { return file_; }
  std::span<std::int64_t> words() const { return {words_, kCount}; }

 private:
  static SharedWords mapped(int file);

  int file_ = -1;
  std::int64_t* words_ = nullptr;
};

}  // namespace dapple::exec
