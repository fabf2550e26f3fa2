#include "cuda/cudnn/cudnn_graph.h"

#include <fmt/format.h>

#include <utility>

#include "dapple/core/error.h"

namespace dapple::cuda {

Dimensions packed_strides(const Dimensions& dimensions) {
  Dimensions strides{};
  std::int64_t stride = 1;
  for (std::size_t i = dimensions.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dimensions[i];
  }
  return strides;
}

void require_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error{ErrorKind::Environment,
              "cuDNN",
              {{"", fmt::format("{}: {}", call, cudnnGetErrorString(status))}}};
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t created = nullptr;
  require_cudnn(cudnnBackendCreateDescriptor(type, &created), "cudnnBackendCreateDescriptor");
  descriptor_.reset(created);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          std::int64_t count, const void* values) {
  require_cudnn(cudnnBackendSetAttribute(get(), name, type, count, values),
                "cudnnBackendSetAttribute");
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& descriptor) {
  const cudnnBackendDescriptor_t value = descriptor.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

void CudnnDescriptor::finalize() {
  require_cudnn(cudnnBackendFinalize(get()), "cudnnBackendFinalize");
}

CudnnDescriptor& CudnnGraph::make(cudnnBackendDescriptorType_t type) {
  return *descriptors_.emplace_back(std::make_unique<CudnnDescriptor>(type));
}

CudnnGraph::Node CudnnGraph::make_node(const Dimensions& dimensions, const Dimensions& strides,
                                       cudnnDataType_t type, bool is_between, bool is_constant) {
  CudnnDescriptor& tensor = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  constexpr std::int64_t kAlignment = 16;
  const std::int64_t number = next_number_;
  tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dimensions.data());
  tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
  tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &kAlignment);
  tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_between);
  tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_constant);
  tensor.finalize();
  return {dimensions, strides, number, &tensor};
}

CudnnGraph::Node CudnnGraph::in_memory(std::int64_t number, const Dimensions& dimensions,
                                       const Dimensions& strides, cudnnDataType_t type) {
  const std::int64_t next = std::exchange(next_number_, number);
  const Node tensor = make_node(dimensions, strides, type, false, false);
  next_number_ = next;
  return tensor;
}

CudnnGraph::Node CudnnGraph::constant(float value) {
  const Node tensor = make_node({1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false, true);
  float* const number = constants_.emplace_back(std::make_unique<float>(value)).get();
  constant_places_.push_back({tensor.number, number});
  ++next_number_;
  return tensor;
}

CudnnGraph::Node CudnnGraph::between(const Dimensions& dimensions, cudnnDataType_t type) {
  const Node tensor = make_node(dimensions, packed_strides(dimensions), type, true, false);
  ++next_number_;
  return tensor;
}

void CudnnGraph::add_operation(CudnnDescriptor& operation) {
  operation.finalize();
  operations_.push_back(operation.get());
}

CudnnGraph::Node CudnnGraph::multiply(const Node& left, const Node& right) {
  Dimensions dimensions = left.dimensions;
  dimensions[3] = right.dimensions[3];
  const Node to = between(dimensions, CUDNN_DATA_FLOAT);
  multiply_to(left, right, to);
  return to;
}

void CudnnGraph::multiply_to(const Node& left, const Node& right, const Node& to) {
  CudnnDescriptor& product = make(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  constexpr cudnnDataType_t kComputedIn = CUDNN_DATA_FLOAT;
  product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &kComputedIn);
  product.finalize();
  CudnnDescriptor& operation = make(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, *left.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, *right.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, *to.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
  add_operation(operation);
}

void CudnnGraph::add_pointwise(cudnnPointwiseMode_t mode, std::int64_t axis,
                               cudnnDataType_t computed_in, std::array<const Node*, 3> inputs,
                               const Node& to) {
  CudnnDescriptor& function = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  function.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  function.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &computed_in);
  if (mode == CUDNN_POINTWISE_GEN_INDEX) {
    function.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
  }
  function.finalize();
  CudnnDescriptor& operation = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function);
  constexpr std::array<cudnnBackendAttributeName_t, 3> kInputs{
      CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
      CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != nullptr) operation.set(kInputs[i], *inputs[i]->descriptor);
  }
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *to.descriptor);
  add_operation(operation);
}

CudnnGraph::Node CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const Node& x, const Node& b,
                                       cudnnDataType_t type) {
  const Node to = between(x.dimensions, type);
  const bool is_comparison = type == CUDNN_DATA_BOOLEAN;
  add_pointwise(mode, 0, is_comparison ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT, {&x, &b, nullptr},
                to);
  return to;
}

CudnnGraph::Node CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const Node& x,
                                       cudnnDataType_t type) {
  const Node to = between(x.dimensions, type);
  add_pointwise(mode, 0, CUDNN_DATA_FLOAT, {&x, nullptr, nullptr}, to);
  return to;
}

void CudnnGraph::pointwise_to(cudnnPointwiseMode_t mode, const Node& x, const Node* b,
                              const Node& to) {
  add_pointwise(mode, 0, CUDNN_DATA_FLOAT, {&x, b, nullptr}, to);
}

CudnnGraph::Node CudnnGraph::index_along(std::int64_t axis, const Node& like) {
  const Node to = between(like.dimensions, CUDNN_DATA_INT32);
  add_pointwise(CUDNN_POINTWISE_GEN_INDEX, axis, CUDNN_DATA_INT32, {&like, nullptr, nullptr}, to);
  return to;
}

CudnnGraph::Node CudnnGraph::select(const Node& where_true, const Node& where_false,
                                    const Node& condition) {
  const Node to = between(where_true.dimensions, CUDNN_DATA_FLOAT);
  add_pointwise(CUDNN_POINTWISE_BINARY_SELECT, 0, CUDNN_DATA_FLOAT,
                {&where_true, &where_false, &condition}, to);
  return to;
}

CudnnGraph::Node CudnnGraph::reduce(cudnnReduceTensorOp_t operation, const Node& x) {
  Dimensions dimensions = x.dimensions;
  dimensions[3] = 1;
  const Node to = between(dimensions, CUDNN_DATA_FLOAT);
  CudnnDescriptor& reduction = make(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  constexpr cudnnDataType_t kComputedIn = CUDNN_DATA_FLOAT;
  reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operation);
  reduction.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &kComputedIn);
  reduction.finalize();
  CudnnDescriptor& step = make(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  step.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, *x.descriptor);
  step.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, *to.descriptor);
  step.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
  add_operation(step);
  return to;
}

CudnnGraph::Node CudnnGraph::transpose(const Node& x, cudnnDataType_t type) {
  Dimensions dimensions = x.dimensions;
  Dimensions strides = x.strides;
  std::swap(dimensions[2], dimensions[3]);
  std::swap(strides[2], strides[3]);
  const Node to = make_node(dimensions, strides, type, true, false);
  ++next_number_;
  CudnnDescriptor& operation = make(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, *x.descriptor);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, *to.descriptor);
  add_operation(operation);
  return to;
}

/// Returns the engine configurations proposed by the heuristic, best first.
CudnnDescriptor& CudnnGraph::choose_engines(const CudnnTarget& target) {
  CudnnDescriptor& graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<std::int64_t>(operations_.size()), operations_.data());
  if (target.handle != nullptr) {
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  }
  graph.finalize();
  CudnnDescriptor& heuristic = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  constexpr cudnnBackendHeurMode_t kMode = CUDNN_HEUR_MODE_A;
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &kMode);
  if (target.properties != nullptr) {
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  }
  heuristic.finalize();
  return heuristic;
}

bool CudnnGraph::plan(const CudnnTarget& target) try {
  const CudnnDescriptor& heuristic = choose_engines(target);
  CudnnDescriptor& engine = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  cudnnBackendDescriptor_t chosen = engine.get();
  std::int64_t count = 0;
  require_cudnn(cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &chosen),
                "cudnnBackendGetAttribute");
  if (count == 0) {
    why_not_ = "no engine";
    return false;
  }
  plan_ = std::make_unique<CudnnDescriptor>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan_->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
  if (target.handle != nullptr) {
    plan_->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
  }
  if (target.properties != nullptr) {
    plan_->set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
  }
  plan_->finalize();
  require_cudnn(cudnnBackendGetAttribute(plan_->get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                         CUDNN_TYPE_INT64, 1, nullptr, &workspace_),
                "cudnnBackendGetAttribute");
  return true;
} catch (const Error& error) {
  plan_.reset();
  why_not_ = error.what();
  return false;
}

void CudnnGraph::run(cudnnHandle_t handle, std::span<const Place> places, void* workspace) {
  std::vector<std::int64_t> numbers;
  std::vector<void*> addresses;
  for (const auto& some : {places, std::span<const Place>(constant_places_)}) {
    for (const Place& place : some) {
      numbers.push_back(place.number);
      addresses.push_back(place.address);
    }
  }
  const auto count = static_cast<std::int64_t>(numbers.size());
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, numbers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finalize();
  require_cudnn(cudnnBackendExecute(handle, plan_->get(), pack.get()), "cudnnBackendExecute");
}

}  // namespace dapple::cuda
