#include "cuda/modules/linear.h"

#include <utility>

#include "cuda/kernels/column_sums.h"
#include "cuda/kernels/padded_rows.h"
#include "cuda/memory/libraries.h"
#include "cuda/modules/modules.h"

namespace dapple::cuda {
namespace {

/// A range of outputs of a layer with one weight vector after another, and no bias, as a layer of
/// its own.
struct OutputRange {
  LinearOperation operation;
  View weight;
  // The outputs of this range in the array of all outputs.
  View outputs;

  bool is_empty() const { return operation.outputs == 0; }
};

OutputRange part_of(const LinearOperation& operation, const View& weight, const View& outputs,
                    std::int64_t begin, std::int64_t end) {
  OutputRange part{operation, weight.part(begin * operation.inputs, end * operation.inputs),
                   outputs.part(begin, outputs.count)};
  part.operation.outputs = end - begin;
  return part;
}

/// Whether rows of outputs that are `stride` numbers apart have gaps.
bool has_gaps(const LinearOperation& operation, std::int64_t stride) {
  return stride > operation.outputs;
}

void multiply_forward(Device& device, const LinearOperation& operation,
                      const LinearForward& arrays) {
  const bool has_gelu = arrays.gelu_input.count > 0;
  device.libraries().products.multiply(
      device, {.rows = arrays.input.count / operation.inputs,
               .depth = operation.inputs,
               .columns = operation.outputs,
               .left = {arrays.input},
               .right = {arrays.weight, operation.transposed},
               .result = arrays.output,
               .result_stride = arrays.output_stride,
               .addend = arrays.addend,
               .bias = arrays.bias,
               .activation = has_gelu ? Product::Activation::Gelu : Product::Activation::None,
               .gelu_input = arrays.gelu_input});
}

/// Adds the product to `addend` unless that is empty.
void multiply_backward(Device& device, const LinearOperation& operation,
                       const LinearBackward& arrays, const View& addend) {
  const bool has_gelu = arrays.gelu_input.count > 0;
  device.libraries().products.multiply(
      device,
      {.rows = arrays.input_gradient.count / operation.inputs,
       .depth = operation.outputs,
       .columns = operation.inputs,
       .left = {arrays.output_gradient, false, arrays.output_gradient_stride},
       .right = {arrays.weight, !operation.transposed},
       .result = arrays.input_gradient,
       .addend = addend,
       .activation = has_gelu ? Product::Activation::GeluGradient : Product::Activation::None,
       .gelu_input = arrays.gelu_input});
}

}  // namespace

/// A product of columns that do not fill a multiple of 16 bytes takes seven times as long on
/// tensor cores, even if its rows are aligned. The few columns beyond the last such multiple are
/// therefore a product of their own.
void apply(Device& device, const LinearOperation& operation, const LinearForward& arrays) {
  if (!has_gaps(operation, arrays.output_stride)) {
    multiply_forward(device, operation, arrays);
    return;
  }
  const std::int64_t aligned = aligned_columns(operation.outputs, arrays.output.type);
  for (const OutputRange& part :
       {part_of(operation, arrays.weight, arrays.output, 0, aligned),
        part_of(operation, arrays.weight, arrays.output, aligned, operation.outputs)}) {
    if (part.is_empty()) continue;
    LinearForward of_part = arrays;
    of_part.weight = part.weight;
    of_part.output = part.outputs;
    multiply_forward(device, part.operation, of_part);
  }
}

/// The columns that are split off, as in apply(), come first: what is rounded before the other
/// product is added to it is small.
void apply_backward(Device& device, const LinearOperation& operation,
                    const LinearBackward& arrays) {
  if (!has_gaps(operation, arrays.output_gradient_stride)) {
    multiply_backward(device, operation, arrays, {});
    return;
  }
  const std::int64_t aligned = aligned_columns(operation.outputs, arrays.output_gradient.type);
  View sum;
  for (const OutputRange& part :
       {part_of(operation, arrays.weight, arrays.output_gradient, aligned, operation.outputs),
        part_of(operation, arrays.weight, arrays.output_gradient, 0, aligned)}) {
    if (part.is_empty()) continue;
    LinearBackward of_part = arrays;
    of_part.weight = part.weight;
    of_part.output_gradient = part.outputs;
    multiply_backward(device, part.operation, of_part, sum);
    sum = arrays.input_gradient;
  }
}

void add_weight_gradients(Device& device, const LinearOperation& operation,
                          const LinearSums& arrays) {
  const MatrixOperand input{arrays.input};
  const MatrixOperand gradient{arrays.output_gradient, false, arrays.output_gradient_stride};
  const MatrixOperand& left = operation.transposed ? gradient : input;
  const MatrixOperand& right = operation.transposed ? input : gradient;
  device.libraries().products.multiply(
      device, {.rows = operation.transposed ? operation.outputs : operation.inputs,
               .depth = arrays.input.count / operation.inputs,
               .columns = operation.transposed ? operation.inputs : operation.outputs,
               .left = {left.numbers, true, left.stride},
               .right = right,
               .result = arrays.weight,
               .addend = arrays.weight,
               .activation = Product::Activation::None});
  if (operation.bias) add_column_sums(device, arrays.output_gradient, arrays.bias);
}

namespace {

class Linear : public DeviceModule {
 public:
  Linear(const LinearOperation& operation, Rows output) : operation_(operation), output_(output) {}

  std::size_t parameter_count() const override { return operation_.bias ? 2 : 1; }

  DeviceTensor forward(Device& device, Parameters parameters, DeviceTensor input,
                       const DeviceTensor&, DeviceStash& stash) const override {
    const std::int64_t stride = product_stride(input.type);
    nn::Shape shape = input.shape;
    shape.back() = stride;
    DeviceTensor output = make_tensor(device, std::move(shape), input.type);
    apply(device, operation_,
          {.input = input.view(),
           .weight = parameters[0],
           .bias = operation_.bias ? parameters[1] : View{},
           .output = output.view(),
           .output_stride = stride});
    stash.tensors.push_back(std::move(input));
    if (output_ == Rows::MayHaveGaps) return output;
    return with_stride(device, std::move(output), operation_.outputs, operation_.outputs);
  }

  DeviceTensor input_gradient(Device& device, Parameters parameters, DeviceTensor output_gradient,
                              DeviceStash& stash) const override {
    const std::int64_t stride = product_stride(output_gradient.type);
    output_gradient = with_stride(device, std::move(output_gradient), operation_.outputs, stride);
    nn::Shape shape = output_gradient.shape;
    shape.back() = operation_.inputs;
    DeviceTensor gradient = make_tensor(device, std::move(shape), output_gradient.type);
    apply_backward(device, operation_,
                   {.output_gradient = output_gradient.view(),
                    .weight = parameters[0],
                    .input_gradient = gradient.view(),
                    .output_gradient_stride = stride});
    stash.tensors.push_back(std::move(output_gradient));
    return gradient;
  }

  void weight_gradient(Device& device, DeviceStash& stash, Gradients sums) const override {
    const DeviceTensor& output_gradient = stash.tensors[1];
    add_weight_gradients(device, operation_,
                         {.input = stash.tensors[0].view(),
                          .output_gradient = output_gradient.view(),
                          .weight = sums[0],
                          .bias = operation_.bias ? sums[1] : View{},
                          .output_gradient_stride = product_stride(output_gradient.type)});
    stash.tensors.clear();
  }

 private:
  /// Returns the stride of outputs and their gradients in products.
  std::int64_t product_stride(Type type) const { return stride_with_gaps(operation_, type); }

  LinearOperation operation_;
  Rows output_;
};

}  // namespace

/// For an output layer over a vocabulary whose size is no multiple of 8, such as GPT-2's 50,257,
/// even copying all rows is much faster than computing products of unaligned rows.
std::int64_t stride_with_gaps(const LinearOperation& operation, Type type) {
  const bool may_have_gaps = operation.transposed && !operation.bias;
  return may_have_gaps ? padded_stride(operation.outputs, type) : operation.outputs;
}

std::unique_ptr<DeviceModule> make_linear(const LinearOperation& operation, Rows output) {
  return std::make_unique<Linear>(operation, output);
}

}  // namespace dapple::cuda
