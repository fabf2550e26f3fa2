// Graphs of cuDNN's backend, version 9: operations on four-dimensional tensors, and the plan that
// computes them. Source: NVIDIA cuDNN Backend API, "Graph API".
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dapple/core/quantity.h"

namespace dapple::cuda {

using Dimensions = std::array<std::int64_t, 4>;

/// Returns the strides of a tensor without gaps whose last dimension is contiguous.
Dimensions packed_strides(const Dimensions& dimensions);

/// Throws Error(Environment) with "CALL: message of cuDNN" unless `status` is success.
void require_cudnn(cudnnStatus_t status, const char* call);

/// A cuDNN descriptor of any type.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& descriptor);
  void finalize();
  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }

 private:
  struct Destroy {
    void operator()(void* descriptor) const {
      static_cast<void>(cudnnBackendDestroyDescriptor(descriptor));
    }
  };
  std::unique_ptr<void, Destroy> descriptor_;
};

/// The GPU of a plan: one that is present, or one that is only described.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  const CudnnDescriptor* properties = nullptr;
};

class CudnnGraph {
 public:
  /// A tensor of this graph. Inputs and outputs have a number by which run() identifies them.
  struct Node {
    Dimensions dimensions;
    Dimensions strides;
    std::int64_t number = 0;
    const CudnnDescriptor* descriptor = nullptr;
  };

  /// Adds a tensor in memory. Numbers are chosen by the caller.
  Node in_memory(std::int64_t number, const Dimensions& dimensions, const Dimensions& strides,
                 cudnnDataType_t type);
  /// Adds a constant Float.
  Node constant(float value);

  // The following add operations. Results are not stored in memory unless `to` is given. They are
  // Float unless a type is given.
  Node multiply(const Node& left, const Node& right);
  void multiply_to(const Node& left, const Node& right, const Node& to);
  Node pointwise(cudnnPointwiseMode_t mode, const Node& x, const Node& b,
                 cudnnDataType_t type = CUDNN_DATA_FLOAT);
  Node pointwise(cudnnPointwiseMode_t mode, const Node& x, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  void pointwise_to(cudnnPointwiseMode_t mode, const Node& x, const Node* b, const Node& to);
  /// Computes the index of each element along the axis.
  Node index_along(std::int64_t axis, const Node& like);
  Node select(const Node& where_true, const Node& where_false, const Node& condition);
  /// Reduces over the last dimension.
  Node reduce(cudnnReduceTensorOp_t operation, const Node& x);
  /// Exchanges the last two dimensions.
  Node transpose(const Node& x, cudnnDataType_t type);

  /// Makes a plan. Returns false if cuDNN has no engine for the graph on that GPU; why_not() then
  /// returns its message.
  bool plan(const CudnnTarget& target);
  const std::string& why_not() const { return why_not_; }
  Bytes workspace() const { return {workspace_}; }

  struct Place {
    std::int64_t number = 0;
    void* address = nullptr;
  };
  /// Requires: plan() returned true; one place for each tensor in memory.
  void run(cudnnHandle_t handle, std::span<const Place> places, void* workspace);

 private:
  CudnnDescriptor& make(cudnnBackendDescriptorType_t type);
  Node make_node(const Dimensions& dimensions, const Dimensions& strides, cudnnDataType_t type,
                 bool is_between, bool is_constant);
  Node between(const Dimensions& dimensions, cudnnDataType_t type);
  void add_pointwise(cudnnPointwiseMode_t mode, std::int64_t axis, cudnnDataType_t computed_in,
                     std::array<const Node*, 3> inputs, const Node& to);
  void add_operation(CudnnDescriptor& operation);
  CudnnDescriptor& choose_engines(const CudnnTarget& target);

  // All descriptors to which the plan refers.
  std::vector<std::unique_ptr<CudnnDescriptor>> descriptors_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  std::vector<std::unique_ptr<float>> constants_;
  std::vector<Place> constant_places_;
  // The next number of a tensor that the caller has not numbered.
  std::int64_t next_number_ = 1'000;
  std::unique_ptr<CudnnDescriptor> plan_;
  std::int64_t workspace_ = 0;
  std::string why_not_;
};

}  // namespace dapple::cuda
