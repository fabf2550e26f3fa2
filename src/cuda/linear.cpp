#include "linear.h"

#include <utility>

#include "column_sums.h"
#include "libraries.h"
#include "modules.h"
#include "padded_rows.h"

namespace dapple::cuda {

void apply(Device& device, const LinearOperation& operation, const LinearForward& arrays) {
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

void apply_backward(Device& device, const LinearOperation& operation,
                    const LinearBackward& arrays) {
  const bool has_gelu = arrays.gelu_input.count > 0;
  device.libraries().products.multiply(
      device,
      {.rows = arrays.input_gradient.count / operation.inputs,
       .depth = operation.outputs,
       .columns = operation.inputs,
       .left = {arrays.output_gradient, false, arrays.output_gradient_stride},
       .right = {arrays.weight, !operation.transposed},
       .result = arrays.input_gradient,
       .activation = has_gelu ? Product::Activation::GeluGradient : Product::Activation::None,
       .gelu_input = arrays.gelu_input});
}

void add_weight_gradients(Device& device, const LinearOperation& operation,
                          const LinearSums& arrays) {
  const Factor input{arrays.input};
  const Factor gradient{arrays.output_gradient, false, arrays.output_gradient_stride};
  const Factor& left = operation.transposed ? gradient : input;
  const Factor& right = operation.transposed ? input : gradient;
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

class Linear : public Module {
 public:
  explicit Linear(const LinearOperation& operation) : operation_(operation) {}

  std::size_t parameter_count() const override { return operation_.bias ? 2 : 1; }

  Tensor forward(Device& device, Parameters parameters, Tensor input, const Tensor&,
                 Stash& stash) const override {
    nn::Shape shape = input.shape;
    shape.back() = operation_.outputs;
    Tensor output = make_tensor(device, std::move(shape), input.type);
    LinearForward arrays{.input = input.view(),
                         .weight = parameters[0],
                         .bias = operation_.bias ? parameters[1] : View{},
                         .output = output.view()};
    if (is_padded(input.type)) {
      const Tensor padded = make_padded(device, output);
      arrays.output = padded.view();
      arrays.output_stride = padded.shape[1];
      apply(device, operation_, arrays);
      copy_rows(device.compute(), {.columns = operation_.outputs,
                                   .from = padded.view(),
                                   .from_stride = padded.shape[1],
                                   .to = output.view(),
                                   .to_stride = operation_.outputs});
    } else {
      apply(device, operation_, arrays);
    }
    stash.tensors.push_back(std::move(input));
    return output;
  }

  Tensor input_gradient(Device& device, Parameters parameters, Tensor output_gradient,
                        Stash& stash) const override {
    if (is_padded(output_gradient.type)) {
      Tensor padded = make_padded(device, output_gradient);
      copy_rows(device.compute(), {.columns = operation_.outputs,
                                   .from = output_gradient.view(),
                                   .from_stride = operation_.outputs,
                                   .to = padded.view(),
                                   .to_stride = padded.shape[1]});
      output_gradient = std::move(padded);
    }
    Tensor gradient = make_tensor(device, stash.tensors[0].shape, output_gradient.type);
    apply_backward(device, operation_,
                   {.output_gradient = output_gradient.view(),
                    .weight = parameters[0],
                    .input_gradient = gradient.view(),
                    .output_gradient_stride = stride_of(output_gradient)});
    stash.tensors.push_back(std::move(output_gradient));
    return gradient;
  }

  void weight_gradient(Device& device, Stash& stash, Gradients sums) const override {
    add_weight_gradients(device, operation_,
                         {.input = stash.tensors[0].view(),
                          .output_gradient = stash.tensors[1].view(),
                          .weight = sums[0],
                          .bias = operation_.bias ? sums[1] : View{},
                          .output_gradient_stride = stride_of(stash.tensors[1])});
    stash.tensors.clear();
  }

 private:
  /// A head over a vocabulary that is no multiple of 8, such as GPT-2's of 50,257: two copies are
  /// much quicker than products of rows that begin anywhere.
  bool is_padded(Type type) const {
    return operation_.transposed && !operation_.bias &&
           padded_stride(operation_.outputs, type) != operation_.outputs;
  }

  Tensor make_padded(Device& device, const Tensor& like) const {
    const std::int64_t rows = like.count() / operation_.outputs;
    return make_tensor(device, {rows, padded_stride(operation_.outputs, like.type)}, like.type);
  }

  /// Of output gradients, padded or not.
  std::int64_t stride_of(const Tensor& gradient) const {
    return is_padded(gradient.type) ? gradient.shape[1] : 0;
  }

  LinearOperation operation_;
};

}  // namespace

std::unique_ptr<Module> make_linear(const LinearOperation& operation) {
  return std::make_unique<Linear>(operation);
}

}  // namespace dapple::cuda
