// A node of MLX's graph whose work is a function of ours, on MLX's CPU stream. Part of the one C++ file that build.rs makes.
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mlx/allocator.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/c/private/mlx.h"
#include "mlx/primitives.h"
#include "mlx/scheduler.h"

extern "C" {
// As in src/cpu_kernel.rs.
struct rmlx_buffer {
  void* data; // of the first element; null where there is none
  const int32_t* shape;
  const int64_t* strides; // in elements
  size_t ndim;
  mlx_dtype dtype;
};
typedef void (*rmlx_cpu_kernel_run)(
    void* context, const rmlx_buffer* inputs, size_t n_inputs, const rmlx_buffer* outputs, size_t n_outputs);
typedef void (*rmlx_cpu_kernel_free)(void* context);
}

namespace rmlx {

using namespace mlx::core;

// What one array is while the task runs. Holds its memory, because the array itself may be gone by then.
struct Operand {
  std::shared_ptr<array::Data> data;
  void* first;
  Shape shape;
  Strides strides;
  mlx_dtype dtype;

  explicit Operand(array& a)
      : data(a.data_shared_ptr()),
        first(a.size() == 0 ? nullptr : a.data<char>()),
        shape(a.shape()),
        strides(a.strides()),
        dtype(mlx_dtype_to_c(a.dtype())) {}

  rmlx_buffer buffer() const {
    return {first, shape.data(), strides.data(), shape.size(), dtype};
  }
};

struct Task {
  rmlx_cpu_kernel_run run;
  std::shared_ptr<void> context;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;

  // The function's side sees to it that nobody reads what nobody wrote.
  void operator()() const {
    std::vector<rmlx_buffer> in, out;
    in.reserve(inputs.size());
    out.reserve(outputs.size());
    for (auto& operand : inputs) in.push_back(operand.buffer());
    for (auto& operand : outputs) out.push_back(operand.buffer());
    run(context.get(), in.data(), in.size(), out.data(), out.size());
  }
};

// Bytes of results below which a call is not counted among those that may be under way.
constexpr size_t UNCOUNTED = 1 << 18;

class CpuKernel : public Primitive {
 public:
  CpuKernel(Stream stream, const char* name, rmlx_cpu_kernel_run run, std::shared_ptr<void> context)
      : Primitive(stream), name_(name), run_(run), context_(std::move(context)) {}

  void eval_cpu(const std::vector<array>& inputs, std::vector<array>& outputs) override {
    auto task = std::make_shared<Task>(Task{run_, context_, {}, {}});
    task->inputs.reserve(inputs.size());
    task->outputs.reserve(outputs.size());
    auto& encoder = cpu::get_command_encoder(stream());
    for (auto& input : inputs) {
      encoder.set_input_array(input);
      array same = input;
      task->inputs.emplace_back(same);
    }
    size_t bytes = 0;
    for (auto& output : outputs) {
      bytes += output.nbytes();
      output.set_data(allocator::malloc(output.nbytes()));
      encoder.set_output_array(output);
      task->outputs.emplace_back(output);
    }
    // Where results are small, not by the encoder's dispatch: that counts, and every ten it wakes who builds the graph, on a core that
    // a kernel may be using. MLX itself dispatches once more for every node, so the graph runs ahead twice as far, but not without
    // end. Large results bound how far memory lets it run.
    auto run = [task = std::move(task)]() { (*task)(); };
    if (bytes < UNCOUNTED) {
      scheduler::enqueue(stream(), std::move(run));
    } else {
      encoder.dispatch(std::move(run));
    }
  }

  void eval_gpu(const std::vector<array>&, std::vector<array>&) override {
    throw std::runtime_error(std::string("[") + name_ + "] runs on the CPU only");
  }

  const char* name() const override {
    return name_;
  }

 private:
  const char* name_; // the context's
  rmlx_cpu_kernel_run run_;
  std::shared_ptr<void> context_;
};

} // namespace rmlx

// Owns `context`, which holds `name`, from the first line on, also where it fails. `shapes` lie one after another; `ndims` says how long each is.
extern "C" int rmlx_cpu_kernel(
    mlx_vector_array* res,
    const char* name,
    const mlx_vector_array inputs,
    const int* shapes,
    const size_t* ndims,
    const mlx_dtype* dtypes,
    size_t n_outputs,
    rmlx_cpu_kernel_run run,
    void* context,
    rmlx_cpu_kernel_free free,
    const mlx_stream s) {
  try {
    std::shared_ptr<void> owned(context, free);
    auto stream = mlx_stream_get_(s);
    if (stream.device != mlx::core::Device::cpu) {
      throw std::invalid_argument(std::string("[") + name + "] runs on the CPU only");
    }
    std::vector<mlx::core::Shape> all;
    std::vector<mlx::core::Dtype> types;
    for (size_t i = 0; i < n_outputs; ++i) {
      all.emplace_back(shapes, shapes + ndims[i]);
      shapes += ndims[i];
      types.push_back(mlx_dtype_to_cpp(dtypes[i]));
    }
    auto primitive = std::make_shared<rmlx::CpuKernel>(stream, name, run, std::move(owned));
    mlx_vector_array_set_(
        *res, mlx::core::array::make_arrays(std::move(all), types, primitive, mlx_vector_array_get_(inputs)));
  } catch (std::exception& e) {
    mlx_error(e.what());
    return 1;
  }
  return 0;
}
