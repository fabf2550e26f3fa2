// A library of others that is loaded when one of its functions is first called, so that a program
// that computes on CPUs neither needs it nor waits for it.
#pragma once

#include <mutex>
#include <string>
#include <utility>

namespace dapple::cuda {

/// To be kept as long as the program runs: the library is never closed.
class SharedLibrary {
 public:
  /// `name` as the system looks for it, "libcublasLt.so.13", and else the file that the program was
  /// built with.
  SharedLibrary(std::string name, std::string built_with)
      : name_(std::move(name)), built_with_(std::move(built_with)) {}

  /// May be called from several threads. Throws Error(Environment) where there is no such library,
  /// or no such function in it.
  template <class Function>
  Function* function(const char* name) {
    return reinterpret_cast<Function*>(address_of(name));
  }

 private:
  void* address_of(const char* name);
  void* load() const;

  std::string name_;
  std::string built_with_;
  std::mutex mutex_;
  void* handle_ = nullptr;
};

}  // namespace dapple::cuda

/// Defines a function of a library as a call of the one in it.
#define DAPPLE_FORWARD(library, result, name, parameters, arguments)             \
  result name parameters {                                                       \
    static auto* const kFunction = (library).function<result parameters>(#name); \
    return kFunction arguments;                                                  \
  }
