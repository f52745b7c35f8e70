# SPDX-License-Identifier: Apache-2.0
"""Triton's autotuner under `imbrex run`: times on the virtual GPU say nothing of a GPU, so each configuration is launched
once, which checks it, and the first that can be launched is taken."""


def _launch_once(kernel_call, quantiles=None, **_):
    kernel_call()
    return [1.0] * len(quantiles) if quantiles is not None else 1.0


def activate():
    from triton.runtime.autotuner import Autotuner

    Autotuner.do_bench = property(lambda autotuner: _launch_once)
