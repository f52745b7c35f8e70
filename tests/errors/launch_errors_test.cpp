// SPDX-License-Identifier: Apache-2.0
// Calls that cannot be carried out: null, released, foreign, too small and misaligned buffers; impossible
// grids.
#include "message.h"

namespace imbrex {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Double {
  void operator()(Int32 n, Ptr<float32> x_ptr) const {
    grid(cdiv(n, 128));
    auto g = global_view(x_ptr, {n});
    Int32 offset = 128 * block_idx.x;
    store_global(g, 2.0f * load_global(g, {offset}, {128}), {offset});
  }
};

class LaunchErrors : public testing::Test {
 protected:
  template <class... Arguments>
  std::string complaint(const Arguments&... arguments) {
    return message_of<LaunchError>([&] { kernel_(arguments...); });
  }
  Device device_ = checked_device("sm_80");
  Kernel<Double> kernel_{{}, device_};
};

TEST_F(LaunchErrors, ANullTensor) {
  EXPECT_THAT(complaint(100, DeviceTensor()),
              AllOf(HasSubstr("argument 2"), HasSubstr("is a null tensor"), HasSubstr("help:")));
}
TEST_F(LaunchErrors, ANullAddress) { EXPECT_THAT(complaint(100, 0), HasSubstr("is a null pointer")); }
TEST_F(LaunchErrors, AReleasedTensor) {
  DeviceTensor x = DeviceTensor::random(device_, float32, {100}, 1);
  x.release();
  EXPECT_THAT(complaint(100, x), HasSubstr("has been released"));
}
TEST_F(LaunchErrors, AnotherElementType) {
  EXPECT_THAT(complaint(100, DeviceTensor::empty(device_, float16, {100})),
              HasSubstr("is a tensor of float16, the kernel takes float32"));
}
TEST_F(LaunchErrors, AnotherDevice) {
  Device other = checked_device("sm_80");
  EXPECT_THAT(complaint(100, DeviceTensor::empty(other, float32, {100})), HasSubstr("lives on"));
}
TEST_F(LaunchErrors, TooSmallABuffer) {
  EXPECT_THAT(complaint(101, DeviceTensor::empty(device_, float32, {100})),
              AllOf(HasSubstr("too small"), HasSubstr("404 bytes"), HasSubstr("400"),
                    HasSubstr("launch_errors_test.cpp:")));
}
TEST_F(LaunchErrors, AMisalignedAddress) {
  DeviceTensor x = DeviceTensor::random(device_, float32, {1000}, 1);
  EXPECT_THAT(complaint(100, x.address() + 2),
              AllOf(HasSubstr("not a multiple of"), HasSubstr("align the buffer")));
}
TEST_F(LaunchErrors, AnEmptyGrid) {
  EXPECT_THAT(
      complaint(0, DeviceTensor::empty(device_, float32, {100})),
      AllOf(HasSubstr("the grid's x is 0"), HasSubstr("allowed are 1 to"), HasSubstr("called with n = 0")));
}
struct ForHopper : Double {
  static constexpr const char* target = "sm_90a";
};

TEST_F(LaunchErrors, ADeviceThatDoesNotRunTheTarget) {
  Device old = checked_device("sm_80");
  Kernel<ForHopper> kernel({}, old);
  const std::string text =
      message_of<LaunchError>([&] { kernel(100, DeviceTensor::empty(old, float32, {100})); });
  EXPECT_THAT(text, AllOf(HasSubstr("is a kernel for sm_90a"), HasSubstr("sm_80"),
                          HasSubstr("open a device for"), HasSubstr("launch_errors_test.cpp:")));
}
TEST_F(LaunchErrors, AKernelWithoutADevice) {
  Kernel<Double> kernel;
  EXPECT_THAT(message_of<LaunchError>([&] { kernel(1, DeviceTensor()); }), HasSubstr("without a device"));
}
TEST_F(LaunchErrors, UnknownDevices) {
  EXPECT_THAT(message_of<LaunchError>([] { Device::open("gpu", "sm_80"); }),
              HasSubstr("use auto, virtual or cuda"));
}

}  // namespace
}  // namespace imbrex
