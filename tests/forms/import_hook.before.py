import importlib.abc
import sys


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "vllm.attention.layer":
            return importlib.util.spec_from_file_location(name, "/opt/orchard/layer.py")
        return None


sys.meta_path.insert(0, Finder())
