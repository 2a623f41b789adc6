"""What makes torch, oneDNN, MKL and the kernels use one instruction set, as on a CPU that has no more.

Each library reads its variable when it is loaded, so they belong in the environment of a new process.
"""

# From the smallest to the largest. `avx512` limits no library of torch's: it has no more to leave out.
LIMITS = {
    "baseline": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "LAMBDANETS_INSTRUCTION_SET": "baseline",
    },
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "LAMBDANETS_INSTRUCTION_SET": "avx2",
    },
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "LAMBDANETS_INSTRUCTION_SET": "avx512"},
}
VARIABLES = {variable for limits in LIMITS.values() for variable in limits}
