# A stand-in for PyTorch's file of the same path: what calls a module, and where a module keeps those below it.


class Module:
    def __init__(self):
        super().__setattr__("_parameters", {})
        super().__setattr__("_forward_hooks", {})
        super().__setattr__("_modules", {})

    def __setattr__(self, name, value):
        modules = self.__dict__.get("_modules")
        if isinstance(value, Module):
            modules[name] = value
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name):
        modules = self.__dict__["_modules"]
        if name in modules:
            return modules[name]
        raise AttributeError(name)

    def _wrapped_call_impl(self, *args, **kwargs):
        return self._call_impl(*args, **kwargs)

    # As in PyTorch, an inner function uses `self`, which is in a cell therefore.
    def _call_impl(self, *args, **kwargs):
        if not self._forward_hooks:
            return self.forward(*args, **kwargs)

        def inner():
            for hook in self._forward_hooks.values():
                hook(self)
            return self.forward(*args, **kwargs)

        return inner()

    __call__ = _wrapped_call_impl
