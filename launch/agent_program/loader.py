"""Imports the agent's modules, which are in no folder of the host: the launcher sends them. Part of the agent."""

import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType


class Loader:
    """Finds and loads the modules, as one of `sys.meta_path`."""

    def __init__(self, modules: Mapping[str, str | CodeType]) -> None:
        self.modules = modules

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """How to load a module; None if it is none of the agent's."""
        if name not in self.modules:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]  # importing its base class takes time

    def create_module(self, spec: ModuleSpec) -> None:
        """Python creates it."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the text or the code of a module."""
        program = self.modules[module.__name__]
        code = compile(program, module.__name__, "exec") if isinstance(program, str) else program
        exec(code, module.__dict__)


def start(modules: Mapping[str, str | CodeType]) -> None:
    """Run the agent."""
    sys.meta_path.insert(0, Loader(modules))
    from tfdist.launch.agent_program.agent import main

    main()
