#include "machine.hpp"

#include <cstdlib>
#include <optional>
#include <vector>

#include <harmonics/error.hpp>

#include "kernels/shared/program_files.hpp"

namespace harmonics::opencl {

namespace {

std::string text_of(cl_platform_id platform, cl_platform_info what) {
  size_t size = 0;
  if (clGetPlatformInfo(platform, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return "";
  std::string text(size, '\0');
  clGetPlatformInfo(platform, what, size, text.data(), nullptr);
  return text.c_str();
}
std::string text_of(cl_device_id device, cl_device_info what) {
  size_t size = 0;
  if (clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return "";
  std::string text(size, '\0');
  clGetDeviceInfo(device, what, size, text.data(), nullptr);
  return text.c_str();
}
template <typename T>
T number_of(cl_device_id device, cl_device_info what) {
  T value{};
  clGetDeviceInfo(device, what, sizeof value, &value, nullptr);
  return value;
}

struct Found {
  cl_platform_id platform;
  cl_device_id device;
  cl_device_type type;
};

std::vector<Found> all_devices() {
  cl_uint n = 0;
  const cl_int code = clGetPlatformIDs(0, nullptr, &n);
  if (code != CL_SUCCESS || n == 0)
    throw Error(ErrorKind::Device,
                "no OpenCL driver is installed; install the one of your accelerator, or pocl-opencl-icd to try it on "
                "the processor");
  std::vector<cl_platform_id> platforms(n);
  check(clGetPlatformIDs(n, platforms.data(), nullptr), "list its platforms");
  std::vector<Found> all;
  for (const cl_platform_id p : platforms) {
    cl_uint count = 0;
    if (clGetDeviceIDs(p, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS || count == 0) continue;
    std::vector<cl_device_id> devices(count);
    check(clGetDeviceIDs(p, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr), "list its devices");
    for (const cl_device_id d : devices)
      if (number_of<cl_bool>(d, CL_DEVICE_AVAILABLE) && number_of<cl_bool>(d, CL_DEVICE_COMPILER_AVAILABLE))
        all.push_back({p, d, number_of<cl_device_type>(d, CL_DEVICE_TYPE)});
  }
  if (all.empty())
    throw Error(
        ErrorKind::Device,
        "OpenCL drivers are installed, but none of them has a device with a compiler (clinfo shows what there is)");
  return all;
}

Found choose() {
  const std::vector<Found> all = all_devices();
  const char* wanted = std::getenv("HARMONICS_OPENCL_DEVICE");
  if (wanted && *wanted) {
    std::string known;
    for (const Found& f : all) {
      const std::string name = text_of(f.device, CL_DEVICE_NAME);
      if ((name + "\n" + text_of(f.platform, CL_PLATFORM_NAME)).find(wanted) != std::string::npos) return f;
      known += (known.empty() ? "'" : ", '") + name + "'";
    }
    throw Error(ErrorKind::Device,
                std::string("no OpenCL device is named '") + wanted + "' (HARMONICS_OPENCL_DEVICE); there is " + known);
  }
  for (const cl_device_type type : {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ACCELERATOR, CL_DEVICE_TYPE_CPU})
    for (const Found& f : all)
      if (f.type & type) return f;
  return all.front();
}

}  // namespace

std::string code_text(cl_int code) {
  static const std::map<cl_int, const char*> names = {
      {CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE"},
      {CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
      {CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES"},
      {CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY"},
      {CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE"},
      {CL_INVALID_VALUE, "CL_INVALID_VALUE"},
      {CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE"},
      {CL_INVALID_KERNEL_NAME, "CL_INVALID_KERNEL_NAME"},
      {CL_INVALID_KERNEL_ARGS, "CL_INVALID_KERNEL_ARGS"},
      {CL_INVALID_ARG_SIZE, "CL_INVALID_ARG_SIZE"},
      {CL_INVALID_WORK_GROUP_SIZE, "CL_INVALID_WORK_GROUP_SIZE"},
      {CL_INVALID_MEM_OBJECT, "CL_INVALID_MEM_OBJECT"},
      {CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"}};
  const auto at = names.find(code);
  return (at == names.end() ? std::string("OpenCL's error") : at->second) + " (" + std::to_string(code) + ")";
}

void check(cl_int code, const char* what) {
  if (code != CL_SUCCESS)
    throw Error(ErrorKind::Device, std::string("OpenCL could not ") + what + ": " + code_text(code));
}

Machine::Machine() {
  const Found found = choose();
  device_ = found.device;
  type_ = found.type;
  describe(found.platform);
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                              reinterpret_cast<cl_context_properties>(found.platform), 0};
  cl_int code = CL_SUCCESS;
  context_ = clCreateContext(properties, 1, &device_, nullptr, nullptr, &code);
  check(code, ("open " + name_).c_str());
}

void Machine::describe(cl_platform_id platform) {
  name_ = text_of(device_, CL_DEVICE_NAME);
  driver_ = text_of(platform, CL_PLATFORM_NAME) + ", " + text_of(device_, CL_DEVICE_VERSION) + ", driver " +
            text_of(device_, CL_DRIVER_VERSION);
  memory_ = number_of<cl_ulong>(device_, CL_DEVICE_GLOBAL_MEM_SIZE);
  most_bytes_ = number_of<cl_ulong>(device_, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  has_f64_ = text_of(device_, CL_DEVICE_EXTENSIONS).find("cl_khr_fp64") != std::string::npos;
  divides_exactly_ =
      number_of<cl_device_fp_config>(device_, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
  capability_ = text_of(device_, CL_DEVICE_OPENCL_C_VERSION);
  while (!capability_.empty() && capability_.back() == ' ') capability_.pop_back();
  capability_ += ", " + std::to_string(number_of<cl_uint>(device_, CL_DEVICE_MAX_COMPUTE_UNITS)) + " units";
  if (has_f64_) capability_ += ", f64";
}

Machine::~Machine() {
  for (const auto& [source, program] : programs_) clReleaseProgram(program);
  if (mapping_) clReleaseCommandQueue(mapping_);
  if (context_) clReleaseContext(context_);
}

void* Machine::allocate_host(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  cl_int code = CL_SUCCESS;
  if (!mapping_) mapping_ = clCreateCommandQueue(context_, device_, 0, &code);
  check(code, "open a queue");
  const cl_mem buffer =
      clCreateBuffer(context_, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, static_cast<size_t>(bytes), nullptr, &code);
  check(code, "give memory");
  void* memory = clEnqueueMapBuffer(mapping_, buffer, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0,
                                    static_cast<size_t>(bytes), 0, nullptr, nullptr, &code);
  if (code != CL_SUCCESS) clReleaseMemObject(buffer);
  check(code, "map memory");
  mapped_[memory] = buffer;
  return memory;
}

void Machine::release_host(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto at = mapped_.find(memory);
  clEnqueueUnmapMemObject(mapping_, at->second, memory, 0, nullptr, nullptr);
  clFinish(mapping_);
  clReleaseMemObject(at->second);
  mapped_.erase(at);
}

std::string Machine::options() const {
  return std::string("-cl-std=CL1.2") + (divides_exactly_ ? " -cl-fp32-correctly-rounded-divide-sqrt" : "");
}

cl_program Machine::build(const std::string& source) const {
  const char* text = source.c_str();
  cl_int code = CL_SUCCESS;
  const cl_program program = clCreateProgramWithSource(context_, 1, &text, nullptr, &code);
  check(code, "take a program");
  if (clBuildProgram(program, 1, &device_, options().c_str(), nullptr, nullptr) == CL_SUCCESS) return program;
  size_t size = 0;
  clGetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
  std::string log(size, '\0');
  clGetProgramBuildInfo(program, device_, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  clReleaseProgram(program);
  throw Error(ErrorKind::Device, "the driver of " + name_ + " cannot compile a generated program: " + log.c_str());
}

cl_program Machine::program(const std::string& source) {
  if (const auto known = programs_.find(source); known != programs_.end()) return known->second;
  const kernels::ProgramFile file("opencl", {driver_, name_, options(), source});
  cl_program made = nullptr;
  if (const std::optional<std::string> binary = file.read()) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(binary->data());
    const size_t size = binary->size();
    cl_int code = CL_SUCCESS, usable = CL_SUCCESS;
    made = clCreateProgramWithBinary(context_, 1, &device_, &size, &bytes, &usable, &code);
    if (made && (code != CL_SUCCESS || usable != CL_SUCCESS ||
                 clBuildProgram(made, 1, &device_, options().c_str(), nullptr, nullptr) != CL_SUCCESS)) {
      clReleaseProgram(made);
      made = nullptr;  // built by another driver: rebuild
    }
  }
  if (!made) {
    made = build(source);
    size_t size = 0;
    if (clGetProgramInfo(made, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) == CL_SUCCESS && size > 0) {
      std::string binary(size, '\0');
      auto* bytes = reinterpret_cast<unsigned char*>(binary.data());
      if (clGetProgramInfo(made, CL_PROGRAM_BINARIES, sizeof bytes, &bytes, nullptr) == CL_SUCCESS) file.write(binary);
    }
  }
  return programs_[source] = made;
}

cl_kernel Machine::kernel(const std::string& source, const char* name) {
  const std::lock_guard lock(mutex_);
  cl_int code = CL_SUCCESS;
  const cl_kernel kernel = clCreateKernel(program(source), name, &code);
  check(code, "make a kernel");
  return kernel;
}

}  // namespace harmonics::opencl
