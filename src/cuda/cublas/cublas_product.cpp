// Matrix products by cuBLASLt, which stores matrices column by column: a matrix stored row by row
// is its transpose. Therefore it computes result^T = right^T left^T, with the right factor as its A
// and the left one as its B.
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "cuda/kernels/layers/activations.h"
#include "cuda/kernels/layers/embedding.h"
#include "cuda/memory/matrix_product.h"
#include "dapple/core/error.h"
#include "dapple/cuda/modules/module.h"

namespace dapple::cuda {
namespace {

void require_blas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error{ErrorKind::Environment,
              "cuBLASLt",
              {{"", fmt::format("{}: {}", call, cublasLtGetStatusString(status))}}};
}

cudaDataType_t blas_type(Type type) {
  switch (type) {
    case Type::Float32:
      return CUDA_R_32F;
    case Type::BFloat16:
      return CUDA_R_16BF;
    case Type::Float16:
      return CUDA_R_16F;
    case Type::Int32:
      break;
  }
  throw Bug("whole numbers are not multiplied");
}

template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
struct Destroy {
  using pointer = Handle;
  void operator()(Handle handle) const { static_cast<void>(kDestroy(handle)); }
};
using Context = std::unique_ptr<void, Destroy<cublasLtHandle_t, cublasLtDestroy>>;
using Operation = std::unique_ptr<void, Destroy<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<void, Destroy<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<void, Destroy<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

constexpr auto kWorkspace = static_cast<std::size_t>(kProductWorkspace.count);

/// Returns the largest power of two, up to 256, that divides the address.
unsigned alignment_of(const View& view) {
  constexpr std::uintptr_t kMost = 256;
  return 1U << std::countr_zero(reinterpret_cast<std::uintptr_t>(view.address) | kMost);
}

/// Everything on which the choice of an algorithm depends.
struct Key {
  std::int64_t rows;
  std::int64_t depth;
  std::int64_t columns;
  Type factors;
  Type result;
  bool is_left_transposed;
  bool is_right_transposed;
  std::array<std::int64_t, 3> strides;
  bool has_bias;
  Product::Activation activation;
  std::array<unsigned, 6> alignments;

  friend auto operator<=>(const Key&, const Key&) = default;
};

Key key_of(const Product& product) {
  return {.rows = product.rows,
          .depth = product.depth,
          .columns = product.columns,
          .factors = product.left.numbers.type,
          .result = product.result.type,
          .is_left_transposed = product.left.is_transposed,
          .is_right_transposed = product.right.is_transposed,
          .strides = {product.left.stride, product.right.stride, product.result_stride},
          .has_bias = product.bias.count > 0,
          .activation = product.activation,
          .alignments = {alignment_of(product.left.numbers), alignment_of(product.right.numbers),
                         alignment_of(product.result), alignment_of(product.addend),
                         alignment_of(product.bias), alignment_of(product.gelu_input)}};
}

cublasLtEpilogue_t epilogue_of(const Product& product) {
  const bool has_bias = product.bias.count > 0;
  switch (product.activation) {
    case Product::Activation::Gelu:
      return has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Product::Activation::GeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
    case Product::Activation::None:
      break;
  }
  return has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

Layout make_layout(Type type, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  require_blas(
      cublasLtMatrixLayoutCreate(&layout, blas_type(type), static_cast<std::uint64_t>(columns),
                                 static_cast<std::uint64_t>(rows), stride == 0 ? columns : stride),
      "cublasLtMatrixLayoutCreate");
  return Layout(layout);
}

/// Returns the layout of a factor as it is stored.
Layout make_layout(const MatrixOperand& factor, std::int64_t rows, std::int64_t columns) {
  if (factor.is_transposed) std::swap(rows, columns);
  return make_layout(factor.numbers.type, rows, columns, factor.stride);
}

template <class Value>
void set(const Operation& operation, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  require_blas(cublasLtMatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
}

template <class Value>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const Value& value) {
  require_blas(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
      "cublasLtMatmulPreferenceSetAttribute");
}

/// The operation, layouts and algorithm of a kind of product.
class Plan {
 public:
  explicit Plan(const Product& product) {
    cublasLtMatmulDesc_t operation = nullptr;
    require_blas(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    operation_.reset(operation);
    const auto way_round = [](const MatrixOperand& factor) {
      return factor.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    };
    set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, way_round(product.right));
    set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, way_round(product.left));
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(product));
    point_to(product);
    right_ = make_layout(product.right, product.depth, product.columns);
    left_ = make_layout(product.left, product.rows, product.depth);
    result_ =
        make_layout(product.result.type, product.rows, product.columns, product.result_stride);
  }

  /// Chooses an algorithm. Returns false if cuBLASLt has none.
  bool choose(const Context& context, const Product& product) {
    cublasLtMatmulPreference_t created = nullptr;
    require_blas(cublasLtMatmulPreferenceCreate(&created), "cublasLtMatmulPreferenceCreate");
    const Preference preference(created);
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspace);
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        alignment_of(product.right.numbers));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product.left.numbers));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(addend_of(product)));
    set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product.result));
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        context.get(), operation_.get(), right_.get(), left_.get(), result_.get(), result_.get(),
        preference.get(), 1, &chosen_, &found);
    const bool is_refused =
        status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
    if (is_refused || (status == CUBLAS_STATUS_SUCCESS && found == 0)) return false;
    require_blas(status, "cublasLtMatmulAlgoGetHeuristic");
    return chosen_.state == CUBLAS_STATUS_SUCCESS;
  }

  Bytes workspace() const { return {static_cast<std::int64_t>(chosen_.workspaceSize)}; }

  void run(Device& device, const Context& context, const Product& product) {
    point_to(product);
    const float one = 1;
    const float addend_factor = product.addend.count > 0 ? 1 : 0;
    const Buffer memory = workspace().count == 0 ? Buffer{} : device.allocate(workspace());
    require_blas(
        cublasLtMatmul(context.get(), operation_.get(), &one, product.right.numbers.address,
                       right_.get(), product.left.numbers.address, left_.get(), &addend_factor,
                       addend_of(product).address, result_.get(), product.result.address,
                       result_.get(), &chosen_.algo, memory.address(), chosen_.workspaceSize,
                       device.compute().handle()),
        "cublasLtMatmul");
  }

 private:
  static const View& addend_of(const Product& product) {
    return product.addend.count > 0 ? product.addend : product.result;
  }

  /// Sets the addresses of the bias and of GELU's argument, which are part of the operation.
  void point_to(const Product& product) {
    if (product.bias.count > 0) {
      set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias.address);
    }
    if (product.gelu_input.count > 0) {
      set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product.gelu_input.address);
      set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.columns);
    }
  }

  Operation operation_;
  Layout right_;
  Layout left_;
  Layout result_;
  cublasLtMatmulHeuristicResult_t chosen_{};
};

}  // namespace

class MatrixProducts::Plans {
 public:
  Plans() {
    cublasLtHandle_t context = nullptr;
    require_blas(cublasLtCreate(&context), "cublasLtCreate");
    context_.reset(context);
  }

  /// Returns the plan of a product; empty if cuBLASLt cannot compute it.
  std::optional<Plan>& plan_of(const Product& product) {
    const auto [found, is_new] = by_key_.try_emplace(key_of(product));
    if (is_new) {
      found->second.emplace(product);
      if (!found->second->choose(context_, product)) found->second.reset();
    }
    return found->second;
  }

  bool try_to_run(Device& device, const Product& product) {
    std::optional<Plan>& plan = plan_of(product);
    if (!plan) return false;
    most_workspace_ = std::max(most_workspace_, plan->workspace());
    plan->run(device, context_, product);
    return true;
  }

  Bytes most_workspace() const { return most_workspace_; }

 private:
  Context context_;
  std::map<Key, std::optional<Plan>> by_key_;
  Bytes most_workspace_;
};

MatrixProducts::MatrixProducts() : plans_(std::make_unique<Plans>()) {}

MatrixProducts::~MatrixProducts() = default;

Bytes MatrixProducts::most_workspace() const {
  return plans_->most_workspace();
}

/// Falls back to separate steps if cuBLASLt cannot fuse the operations. It is not asked to fuse
/// GELU in single precision: its hyperbolic tangent is an approximation whose errors, measured on
/// an H200, made gradients differ twenty times as much from a CPU's as those of our kernels.
void MatrixProducts::multiply(Device& device, const Product& product) {
  const bool is_fusion_exact =
      product.activation == Product::Activation::None || product.result.type != Type::Float32;
  if (is_fusion_exact && plans_->try_to_run(device, product)) return;
  const bool has_gelu = product.activation == Product::Activation::Gelu;
  Product plain = product;
  plain.bias = {};
  plain.gelu_input = {};
  plain.activation = Product::Activation::None;
  if (has_gelu) plain.result = product.gelu_input;
  if (!plans_->try_to_run(device, plain)) {
    throw Error{ErrorKind::Environment,
                "cuBLASLt",
                {{"", fmt::format("expected an algorithm for a product of [{}, {}] and [{}, {}], "
                                  "got none",
                                  product.rows, product.depth, product.depth, product.columns)}}};
  }
  const Stream& stream = device.compute();
  if (product.bias.count > 0) add_positions(stream, product.bias, plain.result);
  if (has_gelu) gelu(stream, product.columns, product.gelu_input, product.result);
  if (product.activation == Product::Activation::GeluGradient) {
    gelu_gradient(stream, product.columns, product.gelu_input, product.result);
  }
}

}  // namespace dapple::cuda
