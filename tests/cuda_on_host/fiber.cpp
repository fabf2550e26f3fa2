#include "fiber.h"

#include <utility>

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define WITH_ADDRESS_SANITIZER
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
#define WITH_THREAD_SANITIZER
#endif

namespace cuda_on_host {

namespace context = boost::context::detail;

namespace {

constexpr std::size_t kStack = std::size_t{128} << 10;

}  // namespace

Fiber::Fiber(std::function<void()> function)
    : function_(std::move(function)), stack_(new std::byte[kStack]) {
  // Stacks grow downwards, so a stack is named by its end.
  own_ = context::make_fcontext(stack_.get() + kStack, kStack, &Fiber::enter);
#ifdef WITH_THREAD_SANITIZER
  own_marks_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef WITH_THREAD_SANITIZER
  __tsan_destroy_fiber(own_marks_);
#endif
}

void Fiber::enter(context::transfer_t from) {
  auto* const self = static_cast<Fiber*>(from.data);
  self->callers_ = from.fctx;
  self->run();
}

void Fiber::run() {
#ifdef WITH_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, &callers_stack_, &callers_stack_size_);
#endif
  while (true) {
    function_();
    has_returned_ = true;
    give_way();
  }
}

void Fiber::resume() {
  has_returned_ = false;
#ifdef WITH_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(&callers_marks_, stack_.get(), kStack);
#endif
#ifdef WITH_THREAD_SANITIZER
  callers_marks_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(own_marks_, 0);
#endif
  own_ = context::jump_fcontext(own_, this).fctx;
#ifdef WITH_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(callers_marks_, nullptr, nullptr);
#endif
}

void Fiber::give_way() {
#ifdef WITH_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(&own_marks_, callers_stack_, callers_stack_size_);
#endif
#ifdef WITH_THREAD_SANITIZER
  __tsan_switch_to_fiber(callers_marks_, 0);
#endif
  callers_ = context::jump_fcontext(callers_, nullptr).fctx;
#ifdef WITH_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(own_marks_, &callers_stack_, &callers_stack_size_);
#endif
}

}  // namespace cuda_on_host
