// A third-party library that is loaded on the first call of one of its functions, so that a program
// that computes on CPUs neither needs it nor spends time on it.
#pragma once

#include <mutex>
#include <string>
#include <utility>

namespace dapple::cuda {

/// A shared library that is never closed. The object must live as long as the program runs.
class SharedLibrary {
 public:
  /// `name` is looked up by the system, such as "libcublasLt.so.13"; if that fails, the file
  /// `built_with`, with which the program was built, is used.
  SharedLibrary(std::string name, std::string built_with)
      : name_(std::move(name)), built_with_(std::move(built_with)) {}

  /// Returns a function of the library; thread-safe. Throws Error(Environment) if there is no such
  /// library, or no such function in it.
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

/// Defines a function that calls the library's function of the same name.
#define DAPPLE_FORWARD(library, result, name, parameters, arguments)             \
  result name parameters {                                                       \
    static auto* const kFunction = (library).function<result parameters>(#name); \
    return kFunction arguments;                                                  \
  }
