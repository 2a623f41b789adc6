"""Tests run with one thread per process, on any machine; randomness is fixed, `make sweep` explores."""

import pytest
import torch
from hypothesis import HealthCheck, settings

from compare import SWEEP

COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("fixed", derandomize=True, database=None, **COMMON)
settings.register_profile("sweep", print_blob=True, **COMMON)
settings.load_profile("sweep" if SWEEP else "fixed")


torch.set_num_threads(1)  # for fixtures of modules, which are made before a test begins


@pytest.fixture(autouse=True)
def _reproducible():
    torch.manual_seed(0)
    yield
    torch.set_num_threads(1)
