# SPDX-License-Identifier: Apache-2.0
"""Launches a kernel that writes past the end, by the driver API and without any package."""

import ctypes

driver = ctypes.CDLL("libcuda.so.1")
PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) { .reg .b64 %a; ld.param.u64 %a, [x]; st.global.u32 [%a+64], 1; ret; }
\0"""


def call(name, *arguments):
    assert getattr(driver, name)(*arguments) == 0, name


def step(kernel, x):
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(x))
    call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None)


context, module, kernel, x = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"k")
call("cuMemAlloc_v2", ctypes.byref(x), ctypes.c_size_t(64))
step(kernel, x)
