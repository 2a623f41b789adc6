"""Called by pip: compile the kernels into the package, or say why not and install without them."""

import importlib.util
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        source = Path(self.root, "src", "lambdanets", "kernels", "build.py")
        spec = importlib.util.spec_from_file_location("build_kernels", source)
        assert spec is not None
        assert spec.loader is not None
        kernels = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kernels)
        try:
            library = kernels.build()
        except kernels.CannotBuildError as error:
            kernels.LIBRARY.unlink(missing_ok=True)  # one of an earlier build would not be this machine's
            self.app.display_warning(f"lambdanets is installed without its kernels, the torch plans serve: {error}")
            return
        build_data["artifacts"].append(str(library.relative_to(self.root)))
        # Plain C behind ctypes: any Python and any torch, but one kind of machine.
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
