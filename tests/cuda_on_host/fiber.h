// A function with a stack of its own, which runs until it gives way, and goes on from there. Known
// to the address and thread sanitizers. Switching stacks by Boost.Context takes no system call, as
// swapcontext() does twice each time, which was a third of what tests of kernels took.
#pragma once

#include <boost/context/detail/fcontext.hpp>
#include <cstddef>
#include <functional>
#include <memory>

namespace cuda_on_host {

class Fiber {
 public:
  /// To be run by resume(); when it has returned, it begins anew the next time.
  explicit Fiber(std::function<void()> function);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs it on the caller's thread until it gives way or returns.
  void resume();
  /// Called inside, ends resume().
  void give_way();
  bool has_returned() const { return has_returned_; }

 private:
  static void enter(boost::context::detail::transfer_t from);
  [[noreturn]] void run();

  std::function<void()> function_;
  std::unique_ptr<std::byte[]> stack_;
  boost::context::detail::fcontext_t own_ = nullptr;
  boost::context::detail::fcontext_t callers_ = nullptr;
  bool has_returned_ = true;
  // What sanitizers keep of either stack.
  [[maybe_unused]] void* own_marks_ = nullptr;
  [[maybe_unused]] void* callers_marks_ = nullptr;
  [[maybe_unused]] const void* callers_stack_ = nullptr;
  [[maybe_unused]] std::size_t callers_stack_size_ = 0;
};

}  // namespace cuda_on_host
